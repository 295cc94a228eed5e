"""The broker goes away, forgets, or delivers too early; clocks jump; clients and runs come two at a time."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.settings import Settings
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipts
from schemas.job import JobSpec
from tests.faults.conftest import FaultyCluster
from tests.faults.oracle import check_job
from tests.integration.conftest import assert_nothing_left, wait_until
from tests.integration.terminal import Terminal, arguments_of
from tests.services import Server
from tests.toy import toy_spec


@pytest.fixture
def on_own_server(server: Server, settings: Settings, tmp_path: Path) -> Iterator[FaultyCluster]:
    changed = {"redis_url": server.url, "lease_seconds": 4.0}
    made = FaultyCluster(settings.model_copy(update=changed), server.url, tmp_path)
    yield made
    made.end()
    assert_nothing_left(made.nodes)


@pytest.fixture
def forgetful() -> Iterator[Server]:
    """It keeps nothing on disk."""
    started = Server(persistent=False)
    yield started
    started.stop()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path / "data")
    yield opened
    opened.close()


def long_job(directory: Path, num_rows: int = 32) -> JobSpec:
    """Shards of 16 rows in four batches; a batch takes 0.4 s."""
    return toy_spec(directory, num_rows, shard_rows=16, round_seconds=0.2)


def outage(cluster: FaultyCluster, server: Server, directory: Path, seconds: float, at_the_end: bool) -> None:
    """at_the_end: the shard's last round is done while the broker is away; it is published all the same."""
    (node,) = cluster.start_faulty("w1")
    spec = long_job(directory)
    job_id = cluster.submit(spec)
    if at_the_end:
        wait_until(lambda: any(p.num_rows_done >= 12 for p in cluster.running(job_id).values()), 30, "the last batch")
    else:
        cluster.wait_mid_shard(job_id)
    server.kill()
    time.sleep(seconds)
    committed = set(read_receipts(Layout(Path(spec.output))))
    server.restart()
    cluster.finish(spec, job_id)
    assert "no broker at" in node.log
    assert node.process.poll() is None
    if at_the_end:
        assert committed, "what is done is published, also while the broker is away"


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_broker_that_is_away_for_longer_than_a_lease(
    on_own_server: FaultyCluster, server: Server, tmp_path: Path, at_the_end: bool
) -> None:
    outage(on_own_server, server, tmp_path, on_own_server.settings.lease_seconds + 2, at_the_end)


@pytest.mark.timeout(400)
def test_a_broker_that_is_away_for_a_minute(on_own_server: FaultyCluster, server: Server, tmp_path: Path) -> None:
    outage(on_own_server, server, tmp_path, 60, at_the_end=False)


@pytest.mark.ci
def test_a_broker_that_forgets_all_is_told_again_by_resume(
    forgetful: Server, settings: Settings, tmp_path: Path
) -> None:
    cluster = FaultyCluster(settings.model_copy(update={"redis_url": forgetful.url}), forgetful.url, tmp_path)
    try:
        cluster.start_faulty("w1")
        spec = long_job(tmp_path, 48)
        job_id = cluster.submit(spec)
        wait_until(lambda: cluster.status(job_id).num_shards_done, 30, "a shard is done")
        forgetful.kill()
        forgetful.restart()
        wait_until(lambda: not cluster.store.has_job(job_id), 10, "it knows nothing")
        # Two at once: one of them finds the other's work.
        both = [cluster.jobctl("resume", spec.output) for _ in range(2)]
        assert [one.wait(30) for one in both] == [0, 0], [one.communicate() for one in both]
        cluster.finish(spec, job_id)
    finally:
        cluster.end()
    assert_nothing_left(cluster.nodes)


def test_a_run_whose_broker_forgets_all_registers_its_job_again(forgetful: Server, tmp_path: Path) -> None:
    opened = Terminal(tmp_path / "data", JOBCTL_REDIS_URL=forgetful.url)
    spec = toy_spec(tmp_path, 48, shard_rows=4, round_seconds=0.3)
    running = opened.start("run", *arguments_of(spec, tmp_path))
    opened.wait_mid_shard(spec)
    forgetful.kill()
    forgetful.restart()
    code = running.end()
    if code != 0:
        # It says so, and the same command goes on.
        assert code == 3 and len(running.err.strip().splitlines()) > 0, running.err
        opened.run("run", *arguments_of(spec, tmp_path))
    check_job(spec)
    opened.close()


def test_messages_that_are_delivered_again_while_their_shard_runs(
    settings: Settings, redis_url: str, tmp_path: Path
) -> None:
    """The visibility timeout is far below a shard's time. A node that starts looks for what to deliver again."""
    hasty = settings.model_copy(update={"lease_seconds": 0.6, "visibility_timeout_seconds": 1.0})
    cluster = FaultyCluster(hasty, redis_url, tmp_path)
    try:
        cluster.start_faulty("w1")
        spec = toy_spec(tmp_path, 16, shard_rows=16, round_seconds=1.0)
        job_id = cluster.submit(spec)
        cluster.wait_mid_shard(job_id)
        (other,) = cluster.start_faulty("w2")
        wait_until(lambda: "dropped message 1 of shard 0" in other.log, 20, "the message came again")
        assert cluster.running(job_id)[0].worker == "w1"
        assert cluster.finish(spec, job_id) == 1.0
    finally:
        cluster.end()
    assert_nothing_left(cluster.nodes)


@pytest.mark.parametrize("seconds", [-86_400.0, 86_400.0])
def test_clocks_that_jump_by_a_day_in_the_midst_of_a_shard(
    faulty: FaultyCluster, tmp_path: Path, seconds: float
) -> None:
    """Of every process of one of two nodes; the other one and the broker have the old time."""
    jump = tmp_path / "jump"
    shifted = {"PYTHONPATH": str(Path(__file__).with_name("clock")), "FAULT_CLOCK": str(jump)}
    faulty.start_faulty("w1", environ=shifted)
    faulty.start_faulty("w2")
    spec = long_job(tmp_path, 96)
    job_id = faulty.submit(spec)
    faulty.wait_mid_shard(job_id, num_workers=2)
    jump.write_text(str(seconds))
    faulty.wait_for(job_id)
    receipts = read_receipts(Layout(Path(spec.output))).values()
    years = {receipt.committed_at[:10] for receipt in receipts if receipt.worker == "w1"}
    assert years - {receipt.committed_at[:10] for receipt in receipts if receipt.worker == "w2"}, "the clock jumped"
    assert faulty.finish(spec, job_id) == 1.0


def test_two_runs_of_one_job_on_one_data_directory(terminal: Terminal, tmp_path: Path) -> None:
    """Two workers on two shards of the same job, one broker that ends with the run that began it."""
    spec = toy_spec(tmp_path, 48, shard_rows=4, round_seconds=0.2)
    both = [terminal.start("run", *arguments_of(spec, tmp_path)) for _ in range(2)]
    terminal.wait_mid_shard(spec)
    assert [one.end() for one in both] == [0, 0], [one.err for one in both]
    check_job(spec)


def test_a_run_killed_beside_another_on_one_data_directory(terminal: Terminal, tmp_path: Path) -> None:
    spec = toy_spec(tmp_path, 64, shard_rows=4, round_seconds=0.2)
    first, second = (terminal.start("run", *arguments_of(spec, tmp_path)) for _ in range(2))
    wait_until(lambda: len({one.worker for one in _receipts(spec)}) == 2, 60, "both work on it")
    first.process.send_signal(signal.SIGKILL)
    assert first.end() == -signal.SIGKILL
    assert second.end() == 0, second.err
    check_job(spec)


def _receipts(spec: JobSpec) -> list[object]:
    started = (Path(spec.output) / "_jobctl" / "receipts").is_dir()
    return list(read_receipts(Layout(Path(spec.output))).values()) if started else []
