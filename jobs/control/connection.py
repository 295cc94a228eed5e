"""The connection to Redis (or Valkey): how patient it is, and its errors as QueueUnavailable."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kombu.exceptions
import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from jobs.settings import shown_url
from schemas.errors import QueueUnavailable

ANSWER_SECONDS = 5.0
HEALTH_CHECK_SECONDS = 10
NUM_RETRIES = 3  # of a connection: one that the server closed while it was idle is not an outage


def connect(redis_url: str) -> Any:
    """A redis.Redis that connects when first used. A silent server is an error after ANSWER_SECONDS, never a hang.

    Typed Any: what its commands return has a different type in every release.
    """
    options: dict[str, Any] = {
        "decode_responses": True,
        "socket_timeout": ANSWER_SECONDS,
        "health_check_interval": HEALTH_CHECK_SECONDS,
        "retry": Retry(ExponentialBackoff(cap=0.4, base=0.05), NUM_RETRIES, (redis.ConnectionError,)),
    }
    if not redis_url.startswith("unix:"):
        options |= {"socket_connect_timeout": ANSWER_SECONDS, "socket_keepalive": True}
    return redis.Redis.from_url(redis_url, **options)


@contextmanager
def translated(redis_url: str) -> Iterator[None]:
    """Raises QueueUnavailable for every foreign error of the broker; a URL's password is never shown."""
    try:
        yield
    except (kombu.exceptions.OperationalError, redis.RedisError, OSError) as error:
        raise QueueUnavailable(f"no broker at {shown_url(redis_url)}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    cause = error.__cause__ if isinstance(error, kombu.exceptions.OperationalError) and error.__cause__ else error
    if isinstance(cause, redis.AuthenticationError | redis.exceptions.NoPermissionError):
        return "wrong user or password; check JOBCTL_REDIS_URL"
    if isinstance(cause, redis.BusyLoadingError):
        return "it is still loading its data; try again soon"
    if isinstance(cause, redis.TimeoutError):
        return f"no answer in {ANSWER_SECONDS:.0f} s; check that it runs"
    if isinstance(cause, redis.ConnectionError | OSError):
        return "it does not accept connections; start it, or check JOBCTL_REDIS_URL"
    return f"it refused a command ({cause}); check its version and memory"
