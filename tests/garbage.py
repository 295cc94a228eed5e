"""What may lie in a queue's list in Redis without being a message of ours; some of it leaves a mark if it is run."""

import base64
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.control.envelope import MAX_MESSAGE_BYTES, RUN_SHARD


def encoded(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def message(body: str | None = None, **changes: Any) -> dict[str, Any]:
    """A well-formed message that names no shard, with changes to its keys (`_` for `-`); None removes one."""
    whole = {
        "body": encoded([["x"], {}, {}]) if body is None else body,
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"lang": "py", "task": RUN_SHARD, "id": "a/0/1"},
        "properties": {
            "body_encoding": "base64",
            "delivery_tag": "tag",
            "delivery_info": {"exchange": "shards.cpu", "routing_key": "shards.cpu"},
            "priority": 0,
        },
    }
    whole |= {name.replace("_", "-"): value for name, value in changes.items()}
    return {name: value for name, value in whole.items() if value is not None}


class Marking:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def refused_messages(mark: Path) -> Mapping[str, bytes]:
    """By what is wrong with them; each is refused before a task sees it. mark: made by the pickle among them."""
    pickled = base64.b64encode(pickle.dumps([[Marking(mark)], {}, {}])).decode()
    headers = {"lang": "py", "task": RUN_SHARD, "id": "a/0/1"}
    wrong: dict[str, Any] = {
        "unknown task": message(headers={**headers, "task": "os.system"}),
        "a list for a task": message(headers={**headers, "task": [RUN_SHARD]}),
        "no id": message(headers={"task": RUN_SHARD}),
        "an id of several lines": message(headers={**headers, "id": "a/0/1\nforged"}),
        "no headers": message(headers=None),
        "headers that are a list": message(headers=[RUN_SHARD]),
        "no properties": message(properties=None),
        "no body": message(body="") | {"body": None},
        "pickle": message(pickled, content_type="application/x-python-serialize"),
        "pickle said to be JSON": message(pickled),
        "yaml": message(content_type="application/x-yaml"),
        "another encoding": message(content_encoding="binary"),
        "broken base64": message("%%% no base64 %%%"),
        "a body that is no JSON": message(base64.b64encode(b"{").decode()),
        "a body that is no list": message(encoded({"args": []})),
        "a body without arguments": message(encoded([{}, [], {}])),
        "a body that is too deep": message(base64.b64encode(b"[" * 20_000).decode()),
        "a number": 7,
        "a list": [message()],
    }
    raw = {name: json.dumps(value).encode() for name, value in wrong.items()}
    return raw | {
        "nothing": b"",
        "text": b"hello",
        "bytes": b"\xff\xfe\x00" + bytes(range(256)),
        "pickled bytes": pickle.dumps(Marking(mark)),
        "half a message": json.dumps(message()).encode()[:-20],
        "a message that is too large": json.dumps(message(encoded([["x" * MAX_MESSAGE_BYTES], {}, {}]))).encode(),
        "too deep": b"[" * (MAX_MESSAGE_BYTES - 1),
        "NaN": b"NaN",
    }
