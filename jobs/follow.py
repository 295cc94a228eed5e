"""Following a job to its end, while this process reconciles it and keeps its workers and its broker up."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath

from jobs.control.queue import Queue, shard_queue
from jobs.control.reconcile import reconcile_job
from jobs.control.state import ShardStates, WorkerRecord
from jobs.control.status import JobStatus, make_status
from jobs.control.store import Store
from jobs.local.broker import Broker
from jobs.local.children import Children
from jobs.plan.plans import plan_of
from jobs.settings import Settings
from schemas.errors import QueueUnavailable, SpecbatchError
from schemas.job import DeviceKind

LOOK_SECONDS = 0.3
OUTAGE_SECONDS = 60.0
MAX_LOOK_SHARE = 0.2  # of the time: a look at a job of many shards costs more

Show = Callable[[JobStatus, str], None]


class OutputUnwritable(SpecbatchError):
    """The output directory failed under us. The user mends it and gives the same command again."""


@dataclass
class Follower:
    """What following needs; `children` are the processes to keep up, none where others do the work.

    show: called at each look with the status and what the job waits for, "" when rows are being generated.
    """

    settings: Settings
    broker: Broker
    store: Store
    queue: Queue
    children: Children
    show: Show
    _last_answer: float = field(default_factory=time.monotonic)
    _next_reconcile: float = 0.0

    def follow(self, job_id: str, until: float = float("inf")) -> JobStatus | None:
        """The status at the job's end, or None at the monotonic time `until`.

        Raises QueueUnavailable when the broker is away for OUTAGE_SECONDS, ChildDied, OutputUnwritable, NotFound.
        """
        while True:
            began = time.monotonic()
            status = self._look_patiently(job_id)
            if status is not None and status.is_terminal:
                return status
            if began >= until:
                return None
            took = time.monotonic() - began
            time.sleep(min(max(LOOK_SECONDS, took / MAX_LOOK_SHARE), max(0.0, until - time.monotonic())))

    def _look_patiently(self, job_id: str) -> JobStatus | None:
        """None while the broker is away. The embedded one is started again at once if its owner has ended."""
        try:
            self.children.keep_up()
            self.broker.ensure()
            status = self._look(job_id)
        except QueueUnavailable:
            if time.monotonic() - self._last_answer > OUTAGE_SECONDS:
                raise
            return None
        self._last_answer = time.monotonic()
        return status

    def _look(self, job_id: str) -> JobStatus:
        record = self.store.job(job_id)
        try:
            if time.monotonic() >= self._next_reconcile:
                reconcile_job(job_id, self.settings, self.store, self.queue)
                self._next_reconcile = time.monotonic() + self.settings.reconcile_seconds
            states = self.store.shard_states(job_id)
            status = make_status(plan_of(record), self.store.job(job_id), states)
        except OSError as error:
            raise OutputUnwritable(
                f"{record.output}: {error.strerror or error}; the same command again goes on where it stopped"
            ) from error
        if not status.is_terminal and status.num_shards_done == status.num_shards:
            self._next_reconcile = 0.0  # all that is missing is the manifest
        self.show(status, waiting_for(status, states, self._lack_of_workers(record.device)))
        return status

    def _lack_of_workers(self, device: DeviceKind) -> str:
        if workers_for(device, self.store):
            return ""
        return "starting workers" if self.children.children else no_worker_for(device)


def workers_for(device: DeviceKind, store: Store) -> list[WorkerRecord]:
    """Those that take a job's shards; a worker on `auto` takes only jobs that do not name a device."""
    return [worker for worker in store.workers() if shard_queue(device) in worker.queues]


def no_worker_for(device: DeviceKind) -> str:
    return f"no worker takes jobs for device {device}; start one: jobctl up --device {device}"


def waiting_for(status: JobStatus, states: ShardStates, lack_of_workers: str) -> str:
    """What stands between the job and its next row, in a few words; "" when rows are being generated."""
    if status.is_terminal:
        return ""
    if status.num_shards_done == status.num_shards:
        return "finishing"
    if lack_of_workers:
        return lack_of_workers
    if status.num_shards_done:
        return ""  # between two shards
    if not status.num_shards_running:
        return "waiting for a worker to take a shard"
    phases = {progress.phase for progress in states.running.values()}
    return f"loading {PurePath(status.model).name}" if phases <= {"starting", "loading"} else ""
