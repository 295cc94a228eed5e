"""What tests of attempts at shards share."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from jobs.control.queue import Queue
from jobs.control.store import Store
from jobs.plan.planning import load_plan
from jobs.settings import Settings
from jobs.submit import submit
from schemas.errors import RowFailed
from schemas.generation import Completion, InputRow, Request, SampleKey
from schemas.job import JobSpec
from schemas.message import ShardMessage
from schemas.plan import Plan
from tests.toy import ToySession
from workers.context import OnAdmit, WorkerContext


class CountingSession(ToySession):
    """Remembers which rows and samples it generated, and does `after_row` once one is done. failing: rows that fail."""

    def __init__(self, spec: JobSpec) -> None:
        super().__init__(spec)
        self.generated: list[int] = []
        self.samples: list[SampleKey] = []
        self.after_row: Callable[[int], None] = lambda row_index: None
        self.failing: Collection[int] = ()

    def encode(self, row: InputRow, plan: Plan) -> list[Request]:
        if row.row_index in self.failing:
            raise RowFailed("unlucky", "it fails this time")
        return super().encode(row, plan)

    def generate(
        self, requests: Sequence[Request], on_round: Callable[[], None], on_admit: OnAdmit
    ) -> Iterator[Completion]:
        for completion in super().generate(requests, on_round, on_admit):
            self.generated.append(completion.row_index)
            self.samples.append((completion.row_index, completion.sample_index))
            yield completion
            self.after_row(completion.row_index)


def session_of(context: WorkerContext, spec: JobSpec) -> CountingSession:
    session = context.session_for(spec)
    assert isinstance(session, CountingSession)
    return session


def submitted(spec: JobSpec, settings: Settings, store: Store, queue: Queue) -> list[ShardMessage]:
    """Submits; returns a message for each shard, in order."""
    job_id = submit(spec, settings, store, queue)
    live = [(one.shard_index, one.delivery) for one in queue.live_deliveries() if one.job_id == job_id]
    return [ShardMessage(job_id=job_id, shard_index=shard, delivery=number) for shard, number in sorted(live)]


def resumed(message: ShardMessage, settings: Settings, store: Store) -> ShardMessage:
    """The next message of a shard, once its wait after a failure is over."""
    time.sleep(settings.retry_seconds * 1.5)
    return store.claim_deliveries(message.job_id, {message.shard_index: message.delivery})[0]


def spec_of(message: ShardMessage, store: Store) -> JobSpec:
    return load_plan(Path(store.job(message.job_id).output)).spec
