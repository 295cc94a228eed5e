"""The broker that jobctl talks to: the one that JOBCTL_REDIS_URL names, or the embedded one."""

from pathlib import Path
from typing import Self

from jobs.control.connection import connect, translated
from jobs.local.embedded import EmbeddedBroker


class NamedBroker:
    """The server that JOBCTL_REDIS_URL names. It is not ours to start or stop."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ensure(self) -> None:
        """Raises QueueUnavailable where it does not answer."""
        with translated(self.url), connect(self.url) as client:
            client.ping()

    def close(self) -> None:
        """Nothing: others use it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Broker = NamedBroker | EmbeddedBroker


def open_broker(redis_url: str | None, data_dir: Path) -> Broker:
    """The broker to use, answering. Close it when done. Raises QueueUnavailable."""
    broker = EmbeddedBroker(data_dir) if redis_url is None else NamedBroker(redis_url)
    broker.ensure()
    return broker
