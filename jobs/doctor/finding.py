"""What a check found."""

from typing import Literal

from schemas.values import Value

Level = Literal["ok", "warn", "fail"]


class Finding(Value):
    """check: what was looked at. level: `warn` costs time or comfort, with `fail` jobs do not run or may lose rows.

    message: one line: what was found, and unless it is ok what to do.
    """

    check: str
    level: Level
    message: str


def ok(check: str, message: str) -> Finding:
    return Finding(check=check, level="ok", message=message)


def warn(check: str, message: str) -> Finding:
    return Finding(check=check, level="warn", message=message)


def fail(check: str, message: str) -> Finding:
    return Finding(check=check, level="fail", message=message)
