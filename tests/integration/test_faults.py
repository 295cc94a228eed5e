"""Workers and brokers that die in the middle of a shard. Each test proves that its fault landed."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.control.queue import Queue, shard_queue
from jobs.control.state import ShardProgress
from jobs.control.store import Store
from jobs.settings import Settings
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipts
from schemas.job import JobSpec
from tests.integration.conftest import Cluster, Node, assert_nothing_left, wait_until
from tests.oracle import check_output
from tests.services import Server
from tests.toy import toy_spec

pytestmark = pytest.mark.services


def long_job(tmp_path: Path, num_rows: int = 16) -> JobSpec:
    """Shards of 16 rows in four batches; a batch takes 0.4 s."""
    return toy_spec(tmp_path, num_rows, shard_rows=16, round_seconds=0.2)


def attempts(spec: JobSpec) -> dict[int, int]:
    """The attempt that committed each shard."""
    return {shard: receipt.attempt for shard, receipt in read_receipts(Layout(Path(spec.output))).items()}


def running_and_idle(cluster: Cluster, job_id: str) -> tuple[Node, Node]:
    """Of two nodes and a job of one shard: the one in the middle of it, and the other."""
    (progress,) = cluster.wait_mid_shard(job_id).values()
    one, other = cluster.nodes
    return (one, other) if one.name == progress.worker else (other, one)


def test_a_worker_process_killed_mid_shard(cluster: Cluster, tmp_path: Path) -> None:
    (node,) = cluster.start("w1")
    spec = long_job(tmp_path, 32)
    job_id = cluster.submit(spec)
    (shard,) = cluster.wait_mid_shard(job_id)
    killed = node.child()
    killed.kill()
    killed.wait(5)
    cluster.wait_for(job_id)
    check_output(spec)
    assert "WorkerLostError" in node.log
    assert node.child().pid != killed.pid
    assert attempts(spec)[shard] == 2


def test_a_node_killed_mid_shard_takes_its_worker_process_with_it(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start("w1", "w2")
    spec = long_job(tmp_path)
    job_id = cluster.submit(spec)
    node, other = running_and_idle(cluster, job_id)
    child = node.child()
    node.signal(signal.SIGKILL)
    assert node.wait() == -signal.SIGKILL
    child.wait(5)
    assert_nothing_left([node])
    assert cluster.status(job_id).num_shards_done == 0
    cluster.wait_for(job_id)
    check_output(spec)
    (receipt,) = read_receipts(Layout(Path(spec.output))).values()
    assert (receipt.worker, receipt.attempt) == (other.name, 2)


def test_a_node_told_to_stop_saves_its_rows_and_gives_its_shard_back(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start("w1", "w2")
    spec = long_job(tmp_path)
    job_id = cluster.submit(spec)
    node, other = running_and_idle(cluster, job_id)
    began = time.monotonic()
    node.signal(signal.SIGTERM)
    saved = Layout(Path(spec.output)).wip_dir(0)
    wait_until(lambda: cluster.running(job_id).get(0, ShardProgress(worker="")).worker != node.name, 5, "given back")
    assert list(saved.glob("*.parquet"))
    assert cluster.store.shard_states(job_id).failures.get(0, 0) in (0, 1)  # 1: the other node has begun
    assert node.wait() == 0
    assert time.monotonic() - began < 10
    assert [record.name for record in cluster.store.workers()] == [other.name]
    cluster.wait_for(job_id)
    check_output(spec)
    assert attempts(spec) == {0: 2}


def test_connections_cut_with_two_workers_mid_shard(
    cluster: Cluster, tmp_path: Path, redis_server: Server, settings: Settings
) -> None:
    """As after a lost connection, the messages of the running shards are delivered again, to whoever is free."""
    nodes = cluster.start("w1", "w2")
    spec = long_job(tmp_path, 64)
    job_id = cluster.submit(spec)
    cluster.wait_mid_shard(job_id, num_workers=2)
    with redis_server.client() as client:
        num_cut = sum(client.client_kill_filter(_type=kind, skipme=True) for kind in ("normal", "pubsub"))
        running = client.hvals(f"{settings.key_prefix}unacked")
        for entry in running:
            client.rpush(f"{settings.key_prefix}{shard_queue('auto')}", json.dumps(json.loads(entry)[0]))
    assert (num_cut >= 4, len(running)) == (True, 2)
    cluster.wait_for(job_id)
    check_output(spec)
    both = nodes[0].log + nodes[1].log
    assert both.count("dropped message 1 of shard") == 2
    assert attempts(spec) == {0: 1, 1: 1, 2: 1, 3: 1}


@pytest.fixture
def own_server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


def test_a_broker_killed_and_restarted_mid_shard(own_server: Server, settings: Settings, tmp_path: Path) -> None:
    patient = settings.model_copy(update={"redis_url": own_server.url})
    cluster = Cluster(patient, Store(patient, own_server.url), Queue(patient, own_server.url), tmp_path)
    try:
        (node,) = cluster.start("w1")
        spec = long_job(tmp_path, 64)
        job_id = cluster.submit(spec)
        cluster.wait_mid_shard(job_id)
        own_server.kill()
        time.sleep(patient.lease_seconds + 1)
        own_server.restart()
        cluster.wait_for(job_id)
        check_output(spec)
        assert "no broker at" in node.log
        assert node.process.poll() is None
    finally:
        cluster.end()
    assert_nothing_left(cluster.nodes)


def test_a_broker_that_forgot_everything_is_told_again_by_submitting_again(
    cluster: Cluster, tmp_path: Path, redis_server: Server
) -> None:
    cluster.start("w1")
    spec = long_job(tmp_path, 48)
    job_id = cluster.submit(spec)
    wait_until(lambda: cluster.status(job_id).num_shards_done, 30, "a shard is done")
    redis_server.flush()
    assert not cluster.store.has_job(job_id)
    done_before = attempts(spec)
    assert cluster.submit(spec) == job_id
    cluster.wait_for(job_id)
    check_output(spec)
    assert done_before.items() <= attempts(spec).items()
