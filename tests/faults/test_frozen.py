"""A worker process that is stopped at a step of publishing, loses its shard to another, and wakes."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipts
from tests.faults.conftest import FaultyCluster
from tests.integration.conftest import wait_until
from tests.toy import toy_spec

# As the commit names them: it stops just after. Those of the beginning come before the session is loaded, so they
# are obeyed from a worker's second shard on.
STEPS = (
    "attempt_begun",
    "fence_raised",
    "temp_receipts_removed",
    "receipts_looked_for",
    "staged_removed",
    "part_durable",
    "temp_receipt_written",
    "fences_looked_for",
    "receipt_published",
    "receipt_durable",
    "temp_receipt_removed",
    "part_in_place",
    "parts_in_place",
    "leftovers_removed",
    "manifest_aside",
    "manifest_looked_at",
    "manifest_published",
    "success_aside",
    "success_published",
)
IN_CI = ("temp_receipt_written", "receipt_published", "success_aside")


def stopped_child(faulty: FaultyCluster) -> psutil.Process | None:
    children = [node.child() for node in faulty.nodes]
    return next((child for child in children if child.status() == psutil.STATUS_STOPPED), None)


def freeze_at_each(faulty: FaultyCluster, directory: Path, steps: tuple[str, ...]) -> None:
    """A job for each step: its worker stops there, the other one ends the job, it wakes, and nothing has changed."""
    faulty.start_faulty("w1", "w2")
    warm = toy_spec(directory / "warm", 16, shard_rows=4, round_seconds=0.2)
    faulty.finish(warm, faulty.submit(warm))  # both have loaded the session
    for step in steps:
        spec = toy_spec(directory / step, 8)
        (faulty.orders / step).write_text("stop")
        job_id = faulty.submit(spec)
        wait_until(lambda: stopped_child(faulty) is not None, 20, f"a worker is stopped at {step}")
        frozen = stopped_child(faulty)
        assert frozen is not None and (faulty.orders / f"{step}.done").exists()
        faulty.wait_for(job_id)
        receipts = read_receipts(Layout(Path(spec.output)))
        os.kill(frozen.pid, signal.SIGCONT)
        faulty.finish(spec, job_id)
        assert read_receipts(Layout(Path(spec.output))) == receipts
        wait_until(lambda: not faulty.queue.live_deliveries(), 20, "the frozen one has acknowledged its message")


@pytest.mark.ci
def test_a_worker_frozen_at_some_steps(faulty: FaultyCluster, tmp_path: Path) -> None:
    freeze_at_each(faulty, tmp_path, IN_CI)


@pytest.mark.timeout(600)
def test_a_worker_frozen_at_every_step(faulty: FaultyCluster, tmp_path: Path) -> None:
    freeze_at_each(faulty, tmp_path, STEPS)


def test_a_worker_frozen_in_the_midst_of_a_forward(faulty: FaultyCluster, tmp_path: Path) -> None:
    faulty.start_faulty("w1", "w2")
    spec = toy_spec(tmp_path, 16, shard_rows=16, round_seconds=0.2)
    job_id = faulty.submit(spec)
    (progress,) = faulty.wait_mid_shard(job_id).values()
    frozen = next(node for node in faulty.nodes if node.name == progress.worker)
    child = frozen.child()
    child.suspend()
    faulty.wait_for(job_id)
    (receipt,) = read_receipts(Layout(Path(spec.output))).values()
    assert (receipt.worker == frozen.name, receipt.attempt) == (False, 2)
    child.resume()
    wait_until(lambda: not faulty.queue.live_deliveries(), 20, "the frozen one has acknowledged its message")
    assert "another attempt may hold it" in frozen.log or "the lease in time" in frozen.log
    faulty.finish(spec, job_id)


def test_a_forward_that_hangs_while_its_lease_thread_lives_on(faulty: FaultyCluster, tmp_path: Path) -> None:
    """The process is alive and its threads run, but no round ends: it is given up after stall_seconds."""
    faulty.settings = faulty.settings.model_copy(update={"stall_seconds": 1.5})
    (tmp_path / "hang").touch()
    faulty.start_faulty("w1", environ={"FAULT_HANG_ONCE": str(tmp_path / "hang")})
    spec = toy_spec(tmp_path, 16)
    job_id = faulty.submit(spec)
    assert faulty.finish(spec, job_id) < 2
    assert not (tmp_path / "hang").exists()
    assert "has not moved for 1.5 s" in faulty.nodes[0].log
