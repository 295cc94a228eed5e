"""Ticks: the times that a cron line names in a time zone, and the paths that carry them."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from zoneinfo import ZoneInfo

from croniter import croniter

from schemas.errors import InvalidJob

TICK_FORMAT = "%Y-%m-%dT%H-%M-%S"
FIELD_FORMATS = {"date": "%Y-%m-%d", "datetime": TICK_FORMAT}
_FIELD = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class CronLine:
    """A cron line (five fields, a sixth one is seconds, or @daily and the like) in a time zone.

    A tick is named by its wall-clock time. The hour that a clock change repeats therefore counts once: its
    second ticks have the names, paths and jobs of the first.
    """

    line: str
    tz: str = "UTC"

    def __post_init__(self) -> None:
        """Raises InvalidJob for a line or zone that is not one, and for a line that no date matches."""
        try:
            zone = self.zone
        except (KeyError, ValueError, OSError) as error:
            raise InvalidJob(f"--tz {self.tz!r} is no time zone; give one like Europe/Berlin") from error
        try:
            croniter(self.line, datetime.now(zone)).get_next(datetime)
        except ValueError as error:
            raise InvalidJob(f"--cron {self.line!r}: {error}") from error

    @cached_property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.tz)

    def after(self, moment: datetime) -> datetime:
        """The first tick later than `moment`."""
        tick: datetime = self._iterator(moment).get_next(datetime)
        return tick

    def at_or_before(self, moment: datetime) -> datetime:
        """The newest tick that `moment` has reached."""
        # get_prev never returns its start.
        tick: datetime = self._iterator(moment + timedelta(microseconds=1)).get_prev(datetime)
        return tick

    def _iterator(self, moment: datetime) -> croniter:
        return croniter(self.line, moment.astimezone(self.zone))


def tick_name(tick: datetime) -> str:
    """The tick's wall-clock time, fit for ids and paths; it sorts as ticks do."""
    return tick.strftime(TICK_FORMAT)


def parse_tick(name: str) -> datetime:
    """The inverse of tick_name, without a zone. Raises InvalidJob."""
    try:
        return datetime.strptime(name, TICK_FORMAT)
    except ValueError as error:
        raise InvalidJob(f"{name!r} is no tick; it looks like 2026-11-30T02-00-00") from error


def fields_of(path: str) -> set[str]:
    """The {…} names in a path. Raises InvalidJob for one that no tick has."""
    names = set(_FIELD.findall(path))
    for name in sorted(names - FIELD_FORMATS.keys()):
        raise InvalidJob(f"{path}: unknown field {{{name}}}; a schedule knows {{date}} and {{datetime}}")
    return names


def expand(path: str, tick: datetime) -> str:
    """`path` with {date} and {datetime} of the tick."""
    return _FIELD.sub(lambda match: tick.strftime(FIELD_FORMATS[match.group(1)]), path)
