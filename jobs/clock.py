"""The time as records keep it."""

from datetime import UTC, datetime


def utc_now() -> str:
    """ISO 8601 in UTC to the microsecond; the texts sort as the times do."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
