"""Jobs over a real queue: with workers that live, and with messages that come twice, late or broken."""

import time
from pathlib import Path

import pytest

from jobs.control.envelope import RUN_SHARD, SUBMIT_SCHEDULED
from jobs.control.queue import shard_queue
from jobs.control.status import exit_code_of
from jobs.settings import Settings
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipts
from schemas.message import ShardMessage
from tests.garbage import refused_messages
from tests.integration.conftest import Cluster, wait_until
from tests.oracle import check_output
from tests.services import Server
from tests.toy import toy_spec

pytestmark = pytest.mark.services


def test_one_worker_does_every_row_once_and_in_order(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start("w1")
    spec = toy_spec(tmp_path, 50)
    status = cluster.wait_for(cluster.submit(spec))
    check_output(spec)
    assert (status.num_ok, status.num_failed, status.num_shards_done) == (50, 0, 7)
    assert exit_code_of(status) == 0


def test_two_workers_share_a_job(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start("w1", "w2")
    spec = toy_spec(tmp_path, 64, round_seconds=0.05)
    cluster.wait_for(cluster.submit(spec))
    check_output(spec)
    receipts = read_receipts(Layout(Path(spec.output)))
    assert {receipt.worker for receipt in receipts.values()} == {"w1", "w2"}
    assert {record.name for record in cluster.store.workers()} == {"w1", "w2"}


def test_messages_that_come_twice_late_or_broken_change_nothing(
    cluster: Cluster, tmp_path: Path, redis_server: Server, settings: Settings
) -> None:
    spec = toy_spec(tmp_path, 24)
    job_id = cluster.submit(spec)
    live = cluster.queue.live_deliveries()
    again = [ShardMessage(job_id=job_id, shard_index=one.shard_index, delivery=one.delivery) for one in live]
    late = [message.model_copy(update={"delivery": 0}) for message in again]
    cluster.queue.enqueue_shards([*again, *late], "cpu")
    send = cluster.queue.app.send_task
    send("nobody.knows", args=["x"], queue=shard_queue("cpu"))
    send(RUN_SHARD, args=["{}"], queue=shard_queue("cpu"))
    send(RUN_SHARD, args=[1, 2], kwargs={"a": 3}, queue=shard_queue("cpu"))
    send(RUN_SHARD, args=["x"], queue=shard_queue("cpu"), countdown=3600)
    send(SUBMIT_SCHEDULED, args=["none", "2030-01-01T00-00-00"], queue="control")
    for arguments in (["none", "now"], ["../none", "2030-01-01T00-00-00"], ["none"], [{}, 3]):
        send(SUBMIT_SCHEDULED, args=arguments, queue="control")
    garbage, mark = refused_messages(tmp_path / "mark"), tmp_path / "mark"
    num_refused = 4 + 4 + 2 * len(garbage) + 1
    with redis_server.client() as client:
        client.rpush(f"{settings.key_prefix}{shard_queue('cpu')}", *garbage.values())
        client.rpush(f"{settings.key_prefix}control", *garbage.values())
        # As if a worker had received it long ago.
        client.hset(f"{settings.key_prefix}unacked", "tag", b"\xff no message")
        client.zadd(f"{settings.key_prefix}unacked_index", {"tag": 0})
        (node,) = cluster.start("w1")
        cluster.wait_for(job_id)
        wait_until(lambda: len(cluster.store.refused_messages()) == num_refused, 20, "the others are refused")
        wait_until(lambda: node.log.count(": stale") == len(again) + len(late), 20, "the others are dropped")
        wait_until(lambda: not client.exists(f"{settings.key_prefix}unacked"), 10, "every message is acknowledged")
    check_output(spec)
    assert attempts_of(spec.output) == [(0, 1), (1, 1), (2, 1)]
    assert node.process.poll() is None
    assert not mark.exists()
    assert "Traceback" not in node.log
    second = toy_spec(tmp_path / "second", 8)
    cluster.wait_for(cluster.submit(second))
    check_output(second)


def test_a_cancelled_job_stops_within_two_seconds_and_goes_on_where_it_was(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start("w1")
    spec = toy_spec(tmp_path, 32, shard_rows=32, round_seconds=0.2)
    job_id = cluster.submit(spec)
    cluster.wait_mid_shard(job_id)
    assert cluster.store.cancel_job(job_id)
    wait_until(lambda: not cluster.running(job_id), 2.0, "the shard stops")
    time.sleep(1)
    assert cluster.running(job_id) == {}
    assert cluster.status(job_id).state == "cancelled"
    assert exit_code_of(cluster.status(job_id)) == 5
    assert list((Path(spec.output) / "_jobctl" / "wip").glob("*/*.parquet"))
    assert cluster.submit(spec) == job_id
    cluster.wait_for(job_id)
    check_output(spec)


def test_a_model_that_is_refused_fails_the_job_with_its_line(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start("w1")
    status = cluster.wait_for(cluster.submit(toy_spec(tmp_path, 8, refuse="no recurrent models")), "failed")
    assert (status.message, exit_code_of(status)) == ("no recurrent models", 2)


def attempts_of(output: str) -> list[tuple[int, int]]:
    names = [path.name for path in (Path(output) / "_jobctl" / "attempts").iterdir() if path.suffix != ".fence"]
    return sorted((int(name.split(".")[0]), int(name.split(".")[1])) for name in names)
