"""Limits: when a job is given up early. They decide nothing about its output."""

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field, field_validator

from schemas.values import Value

COUNT_OR_SHARE = re.compile(r"[0-9]{1,12}|(100|[0-9]{1,2})(\.[0-9]{1,9})?%")


class Limits(Value):
    """max_errors: failed rows beyond which the job fails, a count (`10`) or a share of its rows (`5%`).

    timeout_seconds: how long the job may take, from the time that it was submitted or resumed. None: no limit.
    """

    max_errors: str | None = None
    timeout_seconds: Annotated[float, Field(gt=0, lt=1e10)] | None = None

    @field_validator("max_errors", mode="before")
    @classmethod
    def _plain_count(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("max_errors")
    @classmethod
    def _count_or_share(cls, value: str | None) -> str | None:
        if value is not None and not COUNT_OR_SHARE.fullmatch(value):
            raise ValueError("a number of rows like 10, or a share of them like 5%, is needed")
        return value


LIMITS: tuple[str, ...] = tuple(Limits.model_fields)


def most_errors(max_errors: str, num_rows: int) -> Decimal:
    """How many of num_rows may fail."""
    share = max_errors.removesuffix("%")
    return Decimal(share) if share == max_errors else Decimal(share) * num_rows / 100
