"""One process that does all that client, reconciler and worker do, while one of its calls fails, and then the next.

python -m tests.faults.alone DIRECTORY REDIS_URL DO FIRST STRIDE: each STRIDE-th call from FIRST on, as long as there
are so many. DO: ENOSPC, EIO or EROFS (from that call on, until the disk is mended), once:… (at that call alone), or
kill_before or kill_after (the work is then done in a process forked for it). It is started with the shim, and prints
how many faults landed.
"""

import json
import os
import signal
import sys
from pathlib import Path

from jobs.control.queue import Queue, shard_queue
from jobs.control.reconcile import reconcile_all
from jobs.control.status import read_status
from jobs.control.store import Store
from jobs.settings import Settings
from jobs.submit import submit
from schemas.errors import SpecbatchError
from schemas.job import JobSpec
from schemas.message import ShardMessage
from tests.faults.oracle import check_job, digest_of
from tests.faults.session import load_session, num_generated
from tests.faults.shim import Shim
from tests.integration.conftest import wait_until
from tests.toy import toy_spec
from workers.context import WorkerContext, WorkerOptions
from workers.tasks import handle_message

NUM_ROWS, NUM_LOOKS, END_SECONDS = 6, 3, 30.0


def settings_of(directory: Path, url: str) -> Settings:
    return Settings(
        redis_url=url,
        data_dir=directory / "data",
        lease_seconds=0.25,
        grace_seconds=0.2,
        retry_seconds=0.01,
        checkpoint_seconds=1e-6,
        max_attempts=1000,
    )


class Alone:
    """The three on connections of their own. `Queue` is the real one; this process takes its messages itself."""

    def __init__(self, settings: Settings, url: str) -> None:
        self.settings = settings
        self.store, self.queue = Store(settings, url), Queue(settings, url)
        self.context = WorkerContext(settings, self.store, WorkerOptions(name="alone", device="cpu"), load_session)

    def submit(self, spec: JobSpec) -> str:
        return submit(spec, self.settings, self.store, self.queue)

    def work(self) -> None:
        """A look of the reconciler, then every message that waits. What a shard raises is for the worker's log."""
        reconcile_all(self.settings, self.store, self.queue)
        for live in sorted(self.queue.live_deliveries(), key=lambda one: one.shard_index):
            message = ShardMessage(job_id=live.job_id, shard_index=live.shard_index, delivery=live.delivery)
            handle_message([message.to_json()], self.context)
        self.forget_messages()

    def forget_messages(self) -> None:
        with self.store._redis as client:
            client.delete(self.settings.key_prefix + shard_queue("auto"))

    def work_to_end(self, spec: JobSpec) -> str:
        job_id = self.submit(spec)

        def has_ended() -> bool:
            self.work()
            return read_status(job_id, self.store).is_terminal

        wait_until(has_ended, END_SECONDS, f"{job_id} ends")
        assert read_status(job_id, self.store).state == "finished", read_status(job_id, self.store)
        return job_id

    def replay(self, spec: JobSpec, job_id: str) -> None:
        """Everything once more: messages of all attempts there were, looks, and the submit itself."""
        before = digest_of(spec.output)
        numbers = self.store.shard_states(job_id).deliveries
        old = [(shard, number) for shard, newest in numbers.items() for number in range(newest + 1)]
        self.queue.enqueue_shards([ShardMessage(job_id=job_id, shard_index=s, delivery=n) for s, n in old], "auto")
        self.work()
        assert self.submit(spec) == job_id
        self.work()
        assert digest_of(spec.output) == before


def faulty_work(spec: JobSpec, alone: Alone) -> None:
    """Submits and works; a disk that fails is one line for the user, or for the log."""
    try:
        alone.submit(spec)
        for _ in range(NUM_LOOKS):
            alone.work()
    except SpecbatchError:
        return


def fail(spec: JobSpec, alone: Alone, shim: Shim, do: str, nth: int) -> bool:
    """Whether the nth call was there to fail."""
    shim.arm(do.removeprefix("once:"), nth, Path(spec.output), stays=not do.startswith("once:"))
    faulty_work(spec, alone)
    landed = shim.has_landed
    shim.disarm()
    return landed


def kill(spec: JobSpec, settings: Settings, url: str, shim: Shim, do: str, nth: int) -> bool:
    """Whether the nth call was there to die at."""
    child = os.fork()
    if child == 0:
        shim.arm(do, nth, Path(spec.output))
        faulty_work(spec, Alone(settings, url))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), status
    return status == signal.SIGKILL


def main(directory: str, url: str, do: str, first: str, stride: str) -> None:
    root, shim = Path(directory), Shim()
    settings = settings_of(root, url)
    os.environ.update(settings.to_environ() | {"FAULT_LEDGER": str(root / "ledger")})
    alone, num_landed = Alone(settings, url), 0
    for nth in range(int(first), 100_000, int(stride)):
        spec = toy_spec(root / str(nth), NUM_ROWS, shard_rows=4, batch_size=2)
        is_kill = do.startswith("kill")
        landed = kill(spec, settings, url, shim, do, nth) if is_kill else fail(spec, alone, shim, do, nth)
        alone.forget_messages()
        alone.replay(spec, alone.work_to_end(spec))
        check_job(spec)
        if not landed:
            break
        num_landed += 1
    waste = num_generated(root / "ledger") / (NUM_ROWS * (num_landed + 1))
    print(json.dumps({"num_faults": num_landed, "last_call": nth, "waste": round(waste, 3)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
