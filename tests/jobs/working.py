"""Work on shards in this process, as a worker would do it."""

from collections.abc import Collection, Iterable
from typing import Any

from jobs.control.queue import Queue
from jobs.control.store import Store
from jobs.settings import Settings
from schemas.message import ShardMessage
from tests.workers.attempts import CountingSession
from workers.context import WorkerContext, WorkerOptions
from workers.tasks import handle_message


def counting_worker(
    settings: Settings, store: Store, failing: Collection[int] = ()
) -> tuple[WorkerContext, list[CountingSession]]:
    """A worker, and the sessions that it loaded. failing: rows that fail."""
    sessions: list[CountingSession] = []

    def load(spec: Any, threads: int | None) -> CountingSession:
        sessions.append(CountingSession(spec))
        sessions[-1].failing = failing
        return sessions[-1]

    return WorkerContext(settings, store, WorkerOptions(name="w1", device="cpu"), load), sessions


def run_queued(
    settings: Settings,
    store: Store,
    queue: Queue,
    shards: Iterable[int] | None = None,
    failing: Collection[int] = (),
) -> list[int]:
    """Does each message that is queued, or those of some shards; returns the rows that were generated."""
    wanted = None if shards is None else set(shards)
    context, sessions = counting_worker(settings, store, failing)
    for live in sorted(queue.live_deliveries(), key=lambda one: one.shard_index):
        if wanted is None or live.shard_index in wanted:
            message = ShardMessage(job_id=live.job_id, shard_index=live.shard_index, delivery=live.delivery)
            handle_message([message.to_json()], context)
    return sorted(row for session in sessions for row in session.generated)
