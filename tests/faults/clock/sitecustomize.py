"""A wall clock that jumps: once the file FAULT_CLOCK is there, time.time and datetime are its seconds ahead.

Python runs this before anything else where the directory is on PYTHONPATH. The monotonic clock is not touched.
"""

import datetime
import os
import time

_real_time, _RealDatetime = time.time, datetime.datetime


def _ahead() -> float:
    try:
        with open(os.environ["FAULT_CLOCK"]) as file:
            return float(file.read())
    except (FileNotFoundError, ValueError):  # not yet, or half written
        return 0.0


class _Datetime(_RealDatetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "_Datetime":
        return cls.fromtimestamp(time.time(), tz)


if "FAULT_CLOCK" in os.environ:
    time.time = lambda: _real_time() + _ahead()
    datetime.datetime = _Datetime
