"""What a message looks like in a queue's list in Redis: read with distrust, since others may write there too."""

import base64
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from jobs.storage.durable import unique_name
from schemas.errors import MessageRefused
from schemas.values import first_problem

RUN_SHARD = "specbatch.run_shard"
SUBMIT_SCHEDULED = "specbatch.submit_scheduled"
MAX_MESSAGE_BYTES = 64 * 1024  # ids only travel: ours have about one KiB

TaskId = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]


class _Strict(BaseModel):
    """Libraries add keys of their own in later versions: those are let through, and left behind in `remade`."""

    model_config = ConfigDict(strict=True, extra="ignore")


class _Headers(_Strict):
    task: Literal["specbatch.run_shard", "specbatch.submit_scheduled"]
    id: TaskId


class _Properties(_Strict):
    body_encoding: Literal["base64"]


class _Wire(_Strict):
    headers: _Headers
    properties: _Properties
    content_type: Annotated[Literal["application/json"], Field(alias="content-type")]
    content_encoding: Annotated[Literal["utf-8"], Field(alias="content-encoding")]
    body: str


class Envelope(_Strict):
    """The part of a message that we act on."""

    task: str
    task_id: str
    arguments: list[Any]
    options: dict[str, Any]

    @classmethod
    def parse(cls, raw: bytes | str) -> Self:
        """Raises MessageRefused for what is too large, or is no JSON message of a task of ours."""
        if len(raw) > MAX_MESSAGE_BYTES:
            raise MessageRefused(f"{len(raw)} bytes, more than the {MAX_MESSAGE_BYTES} of a message")
        try:
            wire = _Wire.model_validate(_json(raw))
            arguments, options = _arguments(wire.body)
        except ValidationError as error:
            raise MessageRefused(f"no message of a task: {first_problem(error)}") from error
        except (ValueError, TypeError, RecursionError) as error:
            raise MessageRefused(f"no message of a task: {error}") from error
        return cls(task=wire.headers.task, task_id=wire.headers.id, arguments=arguments, options=options)

    def remade(self, queue: str) -> dict[str, Any]:
        """The message as kombu wants it, made of checked values alone: no times, chains or tags of the sender's."""
        headers = {"lang": "py", "task": self.task, "id": self.task_id, "root_id": self.task_id}
        content = json.dumps([self.arguments, self.options, None])
        return {
            "body": base64.b64encode(content.encode()).decode(),
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": headers,
            "properties": {
                "body_encoding": "base64",
                "delivery_tag": unique_name(),
                "delivery_info": {"exchange": queue, "routing_key": queue},
                "correlation_id": self.task_id,
            },
        }


def readable_body(raw: bytes | str) -> str:
    """What a refused message says: its decoded body, or all of it where it has none."""
    text = raw if isinstance(raw, str) else raw.decode(errors="replace")
    if len(raw) > MAX_MESSAGE_BYTES:
        return text
    try:
        body = _json(text)["body"]
        return base64.b64decode(body, validate=True).decode()
    except (ValueError, TypeError, LookupError, RecursionError):
        return text


def _json(raw: bytes | str) -> Any:
    return json.loads(raw, parse_constant=_no_number)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _arguments(body: str) -> tuple[list[Any], dict[str, Any]]:
    """Of Celery's body: [arguments, options, what else is to be called]."""
    content = _json(base64.b64decode(body, validate=True).decode())
    if not isinstance(content, list) or len(content) != 3:
        raise ValueError("its body is no list of three")
    arguments, options, _ = content
    if not isinstance(arguments, list) or not isinstance(options, Mapping):
        raise ValueError("its body has no arguments")
    return arguments, dict(options)
