"""Schedule: what `jobctl schedule add` was given, and what became of its newest tick."""

import re
from datetime import datetime
from typing import Self

from pydantic import model_validator

from jobs.schedules.ticks import CronLine, expand, fields_of
from schemas.errors import InvalidJob
from schemas.job import JobSpec
from schemas.values import Value

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Schedule(Value):
    """What `jobctl schedule add` was given. `spec` has absolute paths and fields that no tick has filled yet."""

    name: str
    cron: str
    tz: str = "UTC"
    spec: JobSpec

    @model_validator(mode="after")
    def _every_tick_makes_a_job(self) -> Self:
        """Raises InvalidJob for a bad name, cron line or zone, for unknown {fields}, and an output without any."""
        if not NAME.fullmatch(self.name):
            raise InvalidJob(f"schedule name {self.name!r}: use up to 64 letters, digits, and . _ - after the first")
        CronLine(self.cron, self.tz)
        fields_of(self.spec.input)
        if not fields_of(self.spec.output):
            raise InvalidJob(
                f"--output {self.spec.output} would be the same at every tick; put {{date}} or {{datetime}} into it"
            )
        return self

    @property
    def cron_line(self) -> CronLine:
        return CronLine(self.cron, self.tz)

    def spec_at(self, tick: datetime) -> JobSpec:
        paths = {"input": expand(self.spec.input, tick), "output": expand(self.spec.output, tick)}
        return self.spec.model_copy(update=paths)


class LastTick(Value):
    """What became of a schedule's newest tick: its job, or why there is none."""

    tick: str
    job_id: str | None = None
    error: str | None = None
