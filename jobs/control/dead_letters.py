"""Dead letters: shards that were given up, and messages that nobody could do. Listing, replaying, purging."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

from jobs.control.queue import Queue
from jobs.control.reconcile import reconcile_job
from jobs.control.state import DeadShard, JobRecord
from jobs.control.store import Store
from jobs.plan.plans import plan_of
from jobs.settings import Settings
from schemas.errors import InvalidJob, NotFound
from schemas.message import ShardMessage
from schemas.values import Value

MESSAGE = "message-"


class DeadLetter(Value):
    """entry: `<job id>/<shard>` or `message-<id>`. at: when it was given up or refused, ISO 8601, UTC.

    job_id, shard_index: of a message those that it names, None where it names none. first_row, end_row: the shard's
    rows. attempt, worker: the last one that had the shard. body: of a message.
    """

    entry: str
    kind: Literal["shard", "message"]
    at: str
    reason: str
    job_id: str | None = None
    shard_index: int | None = None
    first_row: int | None = None
    end_row: int | None = None
    attempt: int | None = None
    worker: str | None = None
    body: str | None = None


def list_letters(store: Store, job_id: str | None = None) -> list[DeadLetter]:
    """Dead shards by job and index, then refused messages, the newest first; all, or a job's.

    Raises NotFound, QueueUnavailable.
    """
    records = store.jobs() if job_id is None else [store.job(job_id)]
    messages = (_of_message(message) for message in store.refused_messages())
    letters = [letter for record in records for letter in _of_job(record, store)]
    return [*letters, *(letter for letter in messages if job_id in (None, letter.job_id))]


def find_letter(entry: str, store: Store) -> DeadLetter:
    """Raises NotFound."""
    job_id = None if entry.startswith(MESSAGE) else entry.rpartition("/")[0]
    if job_id is None or store.has_job(job_id):
        for letter in list_letters(store, job_id):
            if letter.entry == entry:
                return letter
    raise NotFound(f"no dead letter {entry}; see jobctl dlq list")


def replay(letter: DeadLetter, settings: Settings, store: Store, queue: Queue) -> None:
    """A shard gets new attempts, other dead ones none. A message has its job looked at: what it stands for is then
    enqueued where it is missing.

    Raises InvalidJob where a message stands for no shard of a job, NotFound where the broker has forgotten the job.
    """
    if letter.job_id is None or letter.shard_index is None:
        raise InvalidJob(f"{letter.entry} cannot be replayed: it is no message of a shard ({letter.reason}); purge it")
    if letter.kind == "shard":
        store.revive_shard(letter.job_id, letter.shard_index)
    else:
        _check_shard(letter, store)
    reconcile_job(letter.job_id, settings, store, queue)
    if letter.kind == "message":
        store.forget_message(letter.entry.removeprefix(MESSAGE))


def purge(letter: DeadLetter, store: Store) -> None:
    """Forgets it. Raises InvalidJob for a shard of a job that still runs."""
    if letter.kind == "message":
        store.forget_message(letter.entry.removeprefix(MESSAGE))
        return
    assert letter.job_id is not None and letter.shard_index is not None
    if store.purge_shard(letter.job_id, letter.shard_index) == "open":
        raise InvalidJob(f"{letter.entry} is of a job that has not ended; jobctl cancel {letter.job_id} first")


def message_in(body: str) -> ShardMessage | None:
    """The shard's message in the body of a task's message: arguments, and what Celery puts beside them."""
    for text in _texts(body):
        try:
            return ShardMessage.from_json(text)
        except InvalidJob:
            continue
    return None


def _texts(value: Any) -> Iterator[str]:
    """A text and those in it, as JSON has them."""
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    if isinstance(value, str):
        yield value
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            return
        if isinstance(inner, list):
            yield from _texts(inner)


def _of_job(record: JobRecord, store: Store) -> Iterator[DeadLetter]:
    for shard_index, dead in store.dead_shards(record.job_id).items():
        yield _of_shard(record, shard_index, dead)


def _of_shard(record: JobRecord, shard_index: int, dead: DeadShard) -> DeadLetter:
    """Without its rows where the output directory is gone."""
    letter = DeadLetter(
        entry=f"{record.job_id}/{shard_index}",
        kind="shard",
        at=datetime.fromtimestamp(dead.at_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        reason=dead.error,
        job_id=record.job_id,
        shard_index=shard_index,
        attempt=dead.attempt,
        worker=dead.worker,
    )
    try:
        shard = plan_of(record).shards[shard_index]
    except (NotFound, InvalidJob):
        return letter
    return letter.model_copy(update={"first_row": shard.first_row, "end_row": shard.end_row})


def _of_message(message: dict[str, str]) -> DeadLetter:
    shard = message_in(message["body"])
    return DeadLetter(
        entry=f"{MESSAGE}{message['id']}",
        kind="message",
        at=message["at"],
        reason=message["reason"],
        job_id=shard.job_id if shard else None,
        shard_index=shard.shard_index if shard else None,
        body=message["body"],
    )


def _check_shard(letter: DeadLetter, store: Store) -> None:
    assert letter.job_id is not None and letter.shard_index is not None
    record = store.job(letter.job_id)
    if not 0 <= letter.shard_index < record.num_shards:
        what = f"{letter.job_id} has no shard {letter.shard_index}"
        raise InvalidJob(f"{letter.entry} cannot be replayed: {what}; purge it")
