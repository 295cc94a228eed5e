"""Publishing, and seeing where messages are, on a real server."""

import base64
import json
import time
from pathlib import Path

import pytest

from jobs.control.envelope import RUN_SHARD
from jobs.control.queue import (
    CONTROL_QUEUE,
    QUEUES,
    LiveDelivery,
    Queue,
    celery_url,
    make_app,
    queues_of,
    shard_queue,
)
from jobs.settings import Settings
from schemas.errors import QueueUnavailable
from schemas.job import DeviceKind, DeviceKinds
from schemas.message import ShardMessage
from tests.services import Server

pytestmark = pytest.mark.services


def message(shard: int, delivery: int = 1) -> ShardMessage:
    return ShardMessage(job_id="job-1", shard_index=shard, delivery=delivery)


def live(shard: int, delivery: int = 1, received_seconds: float | None = None) -> LiveDelivery:
    return LiveDelivery("job-1", shard, delivery, received_seconds)


def test_messages_wait_in_the_queue_of_their_device(queue: Queue, redis_server: Server, settings: Settings) -> None:
    for shard, device in enumerate(DeviceKinds):
        queue.enqueue_shard(message(shard), device)
    with redis_server.client() as client:
        sizes = {name: client.llen(settings.key_prefix + name) for name in QUEUES}
    assert sizes == {CONTROL_QUEUE: 0, **{shard_queue(device): 1 for device in DeviceKinds}}
    assert sorted(queue.live_deliveries(), key=lambda one: one.shard_index) == [live(shard) for shard in range(4)]


def test_a_message_holds_ids_only(queue: Queue, redis_server: Server, settings: Settings) -> None:
    queue.enqueue_shard(message(3, 2), "cpu")
    with redis_server.client() as client:
        raw = json.loads(client.lindex(f"{settings.key_prefix}shards.cpu", 0))
    assert (raw["headers"]["task"], raw["content-type"]) == (RUN_SHARD, "application/json")
    assert ShardMessage.from_json(json.loads(base64.b64decode(raw["body"]))[0][0]) == message(3, 2)


def test_they_are_taken_in_the_order_they_were_published(queue: Queue, settings: Settings) -> None:
    assert queue.enqueue_shards([message(shard) for shard in range(5)], "cpu") == 5
    with queue.app.connection_for_read() as connection:
        channel = connection.default_channel
        taken = [channel.basic_get("shards.cpu", no_ack=True).headers["id"] for _ in range(5)]
    assert taken == [f"job-1/{shard}/1" for shard in range(5)]
    assert queue.live_deliveries() == []


def test_what_a_worker_received_is_live_until_it_is_acknowledged(queue: Queue) -> None:
    queue.enqueue_shard(message(0), "cpu")
    with queue.app.connection_for_read() as connection:
        received = connection.default_channel.basic_get("shards.cpu")
        time.sleep(0.2)
        (seen,) = queue.live_deliveries()
        assert (seen.shard_index, seen.delivery) == (0, 1)
        assert seen.received_seconds is not None
        assert 0.2 <= seen.received_seconds < 5
        received.ack()
        assert queue.live_deliveries() == []


def test_messages_of_others_are_not_taken_for_shards(queue: Queue, redis_server: Server, settings: Settings) -> None:
    queue.app.send_task("another.task", args=["x"], queue="shards.cpu", task_id="a/1/2")
    queue.app.send_task(RUN_SHARD, args=["x"], queue="shards.cpu", task_id="by-hand")
    with redis_server.client() as client:
        client.lpush(f"{settings.key_prefix}shards.cpu", json.dumps({"headers": {}}))
    assert queue.live_deliveries() == []


@pytest.mark.parametrize("url", ["unix:///nowhere/s", "redis://user:secret@127.0.0.1:1/0"])
def test_a_broker_that_is_away_is_told_quickly_and_without_the_password(settings: Settings, url: str) -> None:
    queue, began = Queue(settings, url), time.monotonic()
    for call in (queue.live_deliveries, lambda: queue.enqueue_shard(message(0), "cpu")):
        with pytest.raises(QueueUnavailable, match="no broker at") as caught:
            call()
        assert "secret" not in str(caught.value)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("url", "celerys"),
    [
        ("redis://:p@h:1/3", "redis://:p@h:1/3"),
        ("rediss://h:1/3", "rediss://h:1/3?ssl_cert_reqs=required&ssl_check_hostname=true"),
        ("rediss://h:1?ssl_ca_certs=f", "rediss://h:1?ssl_ca_certs=f&ssl_cert_reqs=required&ssl_check_hostname=true"),
        ("unix:///run/v.sock", "redis+socket:///run/v.sock"),
        ("unix:///run/v.sock?db=2", "redis+socket:///run/v.sock?virtual_host=2"),
    ],
)
def test_one_url_serves_both_libraries(url: str, celerys: str) -> None:
    assert celery_url(url) == celerys


def test_a_database_of_a_unix_socket_is_the_same_for_both(settings: Settings, redis_server: Server) -> None:
    url = f"{redis_server.url}?db=2"
    queue = Queue(settings, url)
    queue.enqueue_shard(message(0), "cpu")
    assert queue.live_deliveries() == [live(0)]
    assert Queue(settings, redis_server.url).live_deliveries() == []
    redis_server.flush()


@pytest.mark.parametrize("device", DeviceKinds)
def test_a_worker_consumes_schedules_first_and_then_shards_of_its_device(device: DeviceKind) -> None:
    names = queues_of(device)
    assert names[:2] == [CONTROL_QUEUE, f"shards.{device}"]
    assert len(set(names)) == len(names)
    assert set(names) <= set(QUEUES)
    assert "shards.auto" in names


def test_a_running_shards_message_stays_invisible_in_all_three_places(tmp_path: Path) -> None:
    conf = make_app(Settings(data_dir=tmp_path, visibility_timeout_seconds=5000), "redis://h").conf
    assert conf["visibility_timeout"] == 5000
    assert conf.broker_transport_options["visibility_timeout"] == 5000
    assert conf.result_backend_transport_options["visibility_timeout"] == 5000


def test_celerys_own_variables_do_not_lead_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://elsewhere")
    app = make_app(Settings(data_dir=tmp_path), "redis://h:1/2")
    connections = (app.connection_for_read(), app.connection_for_write())
    assert [connection.hostname for connection in connections] == ["h", "h"]


def test_pickle_is_not_accepted(tmp_path: Path) -> None:
    assert make_app(Settings(data_dir=tmp_path), "redis://h").conf.accept_content == ["json"]
