"""Where schedules are kept: RedBeat entries whose `kwargs` are the Schedule. Only this file and beat.py know it."""

from datetime import UTC, datetime, timedelta
from typing import Any, Self

import celery.schedules
from celery import Celery
from redbeat import RedBeatSchedulerEntry
from redbeat.schedulers import ensure_conf, get_redis

from jobs.control.connection import ANSWER_SECONDS, translated
from jobs.control.envelope import SUBMIT_SCHEDULED
from jobs.control.queue import make_app
from jobs.schedules.spec import LastTick, Schedule
from jobs.schedules.ticks import CronLine
from jobs.settings import Settings
from jobs.texts import one_line
from schemas.errors import InvalidJob, NotFound

LOOP_SECONDS = 1.0


def beat_app(settings: Settings, redis_url: str) -> Celery:
    """The Celery app with RedBeat's options."""
    app = make_app(settings, redis_url)
    app.conf.update(
        redbeat_redis_url=redis_url,
        redbeat_key_prefix=f"{settings.key_prefix}beat:",
        # RedBeat's own lock blocks a second beat for ever, unseen by health checks, and kills one that loses it.
        redbeat_lock_key=None,
        redbeat_redis_options={"socket_timeout": ANSWER_SECONDS},
        # There are no results to clean up, so beat needs no task for it.
        result_expires=None,
        beat_max_loop_interval=LOOP_SECONDS,
    )
    return app


class CronSchedule(celery.schedules.schedule):  # type: ignore[misc]
    """A CronLine in the form that beat asks."""

    def __init__(self, line: CronLine, app: Celery) -> None:
        super().__init__(run_every=timedelta(seconds=LOOP_SECONDS), app=app)
        self.line = line

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        """Whether a tick has come since `last_run_at`, and the seconds until the one to look for next."""
        now = datetime.now(UTC)
        tick = self.line.after(last_run_at)
        is_due = tick <= now
        following = self.line.after(now) if is_due else tick
        return is_due, (following - now).total_seconds()


class ScheduleEntry(RedBeatSchedulerEntry):  # type: ignore[misc]
    """RedBeat's JSON keeps only Celery's own schedules: the cron line is made again from `kwargs`."""

    def __init__(self, *, kwargs: dict[str, Any], app: Celery, **fields: Any) -> None:
        fields["schedule"] = CronSchedule(Schedule.from_mapping(kwargs).cron_line, app)
        super().__init__(kwargs=kwargs, app=app, **fields)

    @classmethod
    def from_key(cls, key: str, app: Celery | None = None) -> Self:
        """Raises KeyError where there is none, InvalidJob where it is not of our making."""
        try:
            entry: Self = super().from_key(key, app=app)
            return entry
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidJob(f"the broker's key {key} holds no schedule: {one_line(error)}; delete it") from error

    @property
    def wanted(self) -> Schedule:
        return Schedule.from_mapping(self.kwargs)

    @property
    def due_at(self) -> datetime:
        return self.wanted.cron_line.after(self.last_run_at)


class Schedules:
    """The schedules on one broker. Every method may raise QueueUnavailable."""

    def __init__(self, settings: Settings, redis_url: str) -> None:
        self._url = redis_url
        self.app = beat_app(settings, redis_url)
        ensure_conf(self.app)
        self._redis = get_redis(self.app)

    def add(self, schedule: Schedule) -> None:
        """Raises InvalidJob where the name is taken. Its first tick is the next one from now on."""
        with translated(self._url):
            if self._redis.exists(self._key(schedule.name)):
                raise InvalidJob(
                    f"a schedule {schedule.name} is there already; jobctl schedule remove {schedule.name} first"
                )
            kwargs = schedule.model_dump(mode="json")
            entry = ScheduleEntry(name=schedule.name, task=SUBMIT_SCHEDULED, kwargs=kwargs, app=self.app)
            entry.last_run_at = datetime.now(UTC)
            entry.save()

    def remove(self, name: str) -> None:
        """Its jobs stay. Raises NotFound."""
        with translated(self._url):
            self._entry(name).delete()

    def get(self, name: str) -> Schedule:
        """Raises NotFound."""
        with translated(self._url):
            return self._entry(name).wanted

    def all(self) -> list[tuple[Schedule, LastTick | None]]:
        """By name."""
        with translated(self._url):
            keys: list[str] = self._redis.zrange(self.app.redbeat_conf.schedule_key, 0, -1)
            entries = [ScheduleEntry.from_key(key, app=self.app) for key in keys]
            notes = [self._redis.hget(entry.key, "last_tick") for entry in entries]
        pairs = zip(entries, notes, strict=True)
        listed = [(entry.wanted, LastTick.from_json(note) if note else None) for entry, note in pairs]
        return sorted(listed, key=lambda pair: pair[0].name)

    def note(self, name: str, last_tick: LastTick) -> None:
        with translated(self._url):
            if self._redis.exists(self._key(name)):
                self._redis.hset(self._key(name), "last_tick", last_tick.to_json())

    def _entry(self, name: str) -> ScheduleEntry:
        try:
            entry: ScheduleEntry = ScheduleEntry.from_key(self._key(name), app=self.app)
        except KeyError as error:
            raise NotFound(f"no schedule {name}; see jobctl schedule list") from error
        return entry

    def _key(self, name: str) -> str:
        key: str = ScheduleEntry.generate_key(self.app, name)
        return key

    def close(self) -> None:
        self.app.close()
        self._redis.close()
