"""The connection to Redis (or Valkey): how patient it is, and its errors as QueueUnavailable."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kombu.exceptions
import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from jobs.settings import shown_url
from jobs.texts import one_line
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
        # Others' bytes must not end who only looks at them.
        "encoding_errors": "replace",
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
    """What to do about it, told by the first error of its chain that says so; others are known by their class only."""
    chain = list(_chain(error))
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = cause.verify_message.rstrip(".")
            return f"its certificate is refused: {reason}; check the host's name and ?ssl_ca_certs=FILE"
        if isinstance(cause, ssl.SSLError):
            return f"no TLS with it: {one_line(cause)}; check JOBCTL_REDIS_URL"
        if isinstance(cause, redis.AuthenticationError):
            return "wrong user or password; check JOBCTL_REDIS_URL"
        if isinstance(cause, redis.exceptions.NoPermissionError):
            return f"{one_line(cause)}; give its user the rights of docs/security.md"
        if isinstance(cause, redis.BusyLoadingError):
            return "it is still loading its data; try again soon"
        if isinstance(cause, redis.TimeoutError):
            return f"no answer in {ANSWER_SECONDS:.0f} s; check that it runs"
    if any(isinstance(cause, redis.ConnectionError | OSError) for cause in chain):
        return "it does not accept connections; start it, or check JOBCTL_REDIS_URL"
    return f"it refused a command ({chain[-1]}); check its version and memory"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """What the libraries have wrapped, outermost first."""
    cause: BaseException | None = error
    while isinstance(cause, kombu.exceptions.OperationalError | redis.RedisError | OSError):
        yield cause
        cause = cause.__cause__ or cause.__context__
