"""What a verb needs to talk to jobs: settings, a broker that answers, the store and the queue on it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.control.store import Store
from jobs.local.broker import Broker, open_broker
from jobs.plan.planning import load_plan
from jobs.settings import Settings

if TYPE_CHECKING:
    from jobs.control.queue import Queue


@dataclass(frozen=True)
class Connection:
    """settings: with the broker's URL in redis_url, as child processes need it."""

    settings: Settings
    broker: Broker
    store: Store

    @property
    def redis_url(self) -> str:
        return self.broker.url

    @cached_property
    def queue(self) -> "Queue":
        # Verbs that only read do not wait for Celery's import.
        from jobs.control.queue import Queue

        return Queue(self.settings, self.redis_url)


@contextmanager
def connected() -> Iterator[Connection]:
    """Attaches to the broker, starting the embedded one for as long as the block lasts. Raises QueueUnavailable."""
    settings = Settings.from_environ()
    with open_broker(settings.redis_url, settings.data_dir) as broker:
        settings = settings.model_copy(update={"redis_url": broker.url})
        with closing(Store(settings, broker.url)) as store:
            yield Connection(settings, broker, store)


def job_id_of(job: str) -> str:
    """`job` is an id, or the output directory of one. Raises NotFound for a directory that holds no job."""
    directory = Path(job)
    return load_plan(directory).job_id if directory.is_dir() else job
