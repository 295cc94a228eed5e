"""What is taken from a queue's list: checked whole, and made anew."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.control.envelope import MAX_MESSAGE_BYTES, RUN_SHARD, Envelope, readable_body
from jobs.control.queue import Queue, shard_queue
from jobs.control.store import MAX_BODY_CHARS, Store
from jobs.settings import Settings
from schemas.errors import MessageRefused
from schemas.message import ShardMessage
from tests.garbage import encoded, message, refused_messages
from tests.services import Server

NAMES = sorted(refused_messages(Path("mark")))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_message_of_ours_is_refused(name: str, tmp_path: Path) -> None:
    raw = refused_messages(tmp_path / "mark")[name]
    with pytest.raises(MessageRefused):
        Envelope.parse(raw)
    assert readable_body(raw) == readable_body(raw.decode(errors="replace"))
    assert list(tmp_path.iterdir()) == []


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_no_bytes_raise_anything_else(raw: bytes | str) -> None:
    with pytest.raises(MessageRefused):
        Envelope.parse(raw)
    assert isinstance(readable_body(raw), str)


def test_a_message_is_made_anew_without_what_its_sender_added() -> None:
    headers = {"task": RUN_SHARD, "id": "a/0/1", "eta": "2990-01-01", "timelimit": [9, 9], "compression": "zlib"}
    embed = {"chain": [{"task": "other", "args": []}], "callbacks": [{}]}
    raw = json.dumps(message(encoded([["x"], {"y": 1}, embed]), headers=headers))
    made = Envelope.parse(raw).remade("shards.cpu")
    assert made["headers"] == {"lang": "py", "task": RUN_SHARD, "id": "a/0/1", "root_id": "a/0/1"}
    assert readable_body(json.dumps(made)) == '[["x"], {"y": 1}, null]'
    assert made["properties"]["delivery_info"] == {"exchange": "shards.cpu", "routing_key": "shards.cpu"}
    assert made["properties"]["delivery_tag"] != "tag"
    assert Envelope.parse(json.dumps(made)) == Envelope.parse(raw)


def test_the_largest_message_is_taken_and_one_byte_more_is_not() -> None:
    raw = json.dumps(message()).encode()
    Envelope.parse(raw + b" " * (MAX_MESSAGE_BYTES - len(raw)))
    with pytest.raises(MessageRefused, match=f"{MAX_MESSAGE_BYTES + 1} bytes"):
        Envelope.parse(raw + b" " * (MAX_MESSAGE_BYTES + 1 - len(raw)))


@pytest.mark.services
def test_what_waits_is_seen_among_garbage(queue: Queue, redis_server: Server, settings: Settings) -> None:
    queue.enqueue_shard(ShardMessage(job_id="job-1", shard_index=3, delivery=2), "cpu")
    garbage: dict[str, Any] = dict(refused_messages(Path("mark")))
    for task_id in ("a/b/c", "a/-1/2", "a/1/" + "9" * 30):
        garbage[task_id] = json.dumps(message(headers={"task": RUN_SHARD, "id": task_id}))
    with redis_server.client() as client:
        client.lpush(f"{settings.key_prefix}{shard_queue('cpu')}", *garbage.values())
        del garbage["a list"]  # of a message: what kombu keeps of those that a worker has
        client.hset(f"{settings.key_prefix}unacked", mapping=garbage)
        client.zadd(f"{settings.key_prefix}unacked_index", dict.fromkeys(garbage, 0))
    assert [(one.job_id, one.shard_index, one.delivery) for one in queue.live_deliveries()] == [("job-1", 3, 2)]


@pytest.mark.services
def test_a_refused_message_is_kept_cut_and_whatever_it_holds(store: Store) -> None:
    store.refuse_message("\ud800" + "x" * 100_000, "y" * 100_000)
    (kept,) = store.refused_messages()
    assert len(kept["body"]) == MAX_BODY_CHARS and len(kept["reason"]) < MAX_BODY_CHARS
