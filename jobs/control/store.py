"""The state of jobs and shards in Redis. The only file, with its Lua, that knows the keys; the Lua has their map."""

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from jobs.clock import utc_now
from jobs.control.connection import connect, translated
from jobs.control.state import Ending, JobRecord, ShardProgress, ShardStates, WorkerRecord
from jobs.settings import Settings
from schemas.errors import NotFound
from schemas.message import ShardMessage

LUA = Path(__file__).with_suffix(".lua").read_text(encoding="utf-8")
RECORD_SECONDS = 30 * 24 * 3600  # an ended job's record; its output directory keeps the rest
HEARTBEAT_SECONDS = 20.0
LONGEST_WAIT_SECONDS = 300.0
MAX_REFUSED = 1000
SHARD_HASHES = ("delivery", "taken", "claimed_at", "failures", "errors", "retry_at", "dead", "live")

TakeAnswer = Literal["taken", "held", "stale", "cancelled", "failed", "unknown"]
RenewAnswer = Literal["held", "lost", "cancelled", "failed", "unknown"]
Outcome = Literal["done", "forgiven", "failed"]


class Store:
    """Every method may raise QueueUnavailable. Safe to share between threads; each transition is atomic."""

    def __init__(self, settings: Settings, redis_url: str) -> None:
        self._settings, self._url = settings, redis_url
        self._redis = connect(redis_url)
        self._lua = self._redis.register_script(LUA)

    def ping(self) -> None:
        self._run("ping")

    def close(self) -> None:
        self._redis.close()

    # --- jobs

    def register_job(self, record: JobRecord) -> None:
        """Remembers the job and lets it run. Registering it again changes nothing."""
        key = self._job_key(record.job_id)
        facts = record.model_dump(mode="json", exclude_none=True)
        with translated(self._url):
            pipe = self._redis.pipeline(transaction=True)
            for name, value in facts.items():
                pipe.hsetnx(key, name, value)
            pipe.zadd(self._key("jobs"), {record.job_id: time.time() * 1000}, nx=True)
            pipe.sadd(self._key("open"), record.job_id)
            for name in (key, *self._shard_keys(record.job_id)):
                pipe.persist(name)
            pipe.execute()

    def reopen_job(self, job_id: str) -> None:
        """Takes back what stopped the job, and gives its dead letters new attempts. Raises NotFound."""
        self.job(job_id)
        self._transition("open", job_id)

    def job(self, job_id: str) -> JobRecord:
        """Raises NotFound."""
        facts = self._run("hgetall", self._job_key(job_id))
        if not facts:
            raise NotFound(f"no job {job_id}; see `jobctl list`")
        return JobRecord.from_mapping(facts)

    def has_job(self, job_id: str) -> bool:
        return bool(self._run("exists", self._job_key(job_id)))

    def jobs(self) -> list[JobRecord]:
        """Every job that is remembered, the oldest first."""
        ids = self._run("zrange", self._key("jobs"), 0, -1)
        facts = self._pipelined("hgetall", [[self._job_key(job_id)] for job_id in ids])
        forgotten = [job_id for job_id, found in zip(ids, facts, strict=True) if not found]
        if forgotten:
            self._run("zrem", self._key("jobs"), *forgotten)
        return [JobRecord.from_mapping(found) for found in facts if found]

    def open_jobs(self) -> list[str]:
        """Jobs that may still need something: neither ended nor stopped."""
        return sorted(self._run("smembers", self._key("open")))

    def cancel_job(self, job_id: str) -> bool:
        """Running shards stop after their round. False where the job had ended before. Raises NotFound."""
        return self._stop(job_id, "cancelled_at", utc_now())

    def fail_job(self, job_id: str, message: str) -> bool:
        """No worker can run it, and `message` says why in one line. False where it had ended. Raises NotFound."""
        return self._stop(job_id, "failed", message)

    def end_job(self, job_id: str, ending: Ending) -> bool:
        """Nothing is left to do. Its record is kept for RECORD_SECONDS. Raises NotFound."""
        changed = self._stop(job_id, "ended", ending)
        keys = [self._job_key(job_id), *self._shard_keys(job_id)]
        self._pipelined("expire", [[key, RECORD_SECONDS] for key in keys])
        return changed

    # --- shards

    def shard_states(self, job_id: str) -> ShardStates:
        with translated(self._url):
            pipe = self._redis.pipeline(transaction=True)
            self._lua(keys=self._lua_keys(job_id), args=["running", ""], client=pipe)
            for name in ("delivery", "taken", "failures", "errors", "dead"):
                pipe.hgetall(f"{self._job_key(job_id)}:{name}")
            running, deliveries, taken, failures, errors, dead = pipe.execute()
        progress = zip(running[::2], running[1::2], strict=True)
        return ShardStates(
            deliveries=_ints(deliveries),
            taken=_ints(taken),
            running={int(shard): ShardProgress.from_json(text) for shard, text in progress},
            failures=_ints(failures),
            errors={int(shard): text for shard, text in errors.items()},
            dead={int(shard): text for shard, text in dead.items()},
        )

    def claim_deliveries(self, job_id: str, newest: dict[int, int]) -> list[ShardMessage]:
        """The messages to publish for shards whose newest message, as given, is not on its way anywhere.

        Of several that claim the same one gets it. A shard that is leased, stopped, waiting after a failure
        or used up gets none; used-up ones become dead letters.
        """
        grace, most = _ms(self._settings.grace_seconds), self._settings.max_attempts
        with translated(self._url):
            pipe = self._redis.pipeline(transaction=False)
            for shard, number in newest.items():
                self._lua(self._lua_keys(job_id), ["claim", shard, number, grace, most], client=pipe)
            answers = pipe.execute()
        return [
            ShardMessage(job_id=job_id, shard_index=shard, delivery=answer)
            for shard, answer in zip(newest, answers, strict=True)
            if isinstance(answer, int)
        ]

    def take_lease(self, message: ShardMessage, owner: str, progress: ShardProgress) -> TakeAnswer:
        """The right to commit the shard, for lease_seconds. `owner` is unique to the attempt."""
        ttl = _ms(self._settings.lease_seconds)
        arguments = [message.delivery, owner, ttl, progress.to_json()]
        return cast(TakeAnswer, self._transition("take", message.job_id, message.shard_index, *arguments))

    def renew_lease(self, job_id: str, shard: int, owner: str, progress: ShardProgress) -> RenewAnswer:
        """Also says whether the job was stopped meanwhile."""
        ttl = _ms(self._settings.lease_seconds)
        return cast(RenewAnswer, self._transition("renew", job_id, shard, owner, ttl, progress.to_json()))

    def release_lease(self, job_id: str, shard: int, owner: str, outcome: Outcome, error: str = "") -> None:
        """`failed` counts against max_attempts, unless rows were added; `forgiven` does not."""
        waits = _ms(self._settings.retry_seconds), _ms(LONGEST_WAIT_SECONDS)
        self._transition("release", job_id, shard, owner, outcome, error, *waits, self._settings.max_attempts)

    def note_rows_added(self, job_id: str, shard: int) -> None:
        """The shard gets on: its count of fruitless attempts begins anew."""
        self._run("hdel", f"{self._job_key(job_id)}:failures", shard)

    # --- workers, and messages that nobody can do

    def beat(self, worker: WorkerRecord) -> None:
        with translated(self._url):
            pipe = self._redis.pipeline(transaction=True)
            pipe.set(self._key(f"worker:{worker.name}"), worker.to_json(), px=_ms(HEARTBEAT_SECONDS))
            pipe.sadd(self._key("workers"), worker.name)
            pipe.execute()

    def forget_worker(self, name: str) -> None:
        self._run("delete", self._key(f"worker:{name}"))

    def workers(self) -> list[WorkerRecord]:
        """Nodes whose heartbeat is not older than HEARTBEAT_SECONDS, by name."""
        names = sorted(self._run("smembers", self._key("workers")))
        beats = self._pipelined("get", [[self._key(f"worker:{name}")] for name in names])
        silent = [name for name, text in zip(names, beats, strict=True) if text is None]
        if silent:
            self._run("srem", self._key("workers"), *silent)
        return [WorkerRecord.from_json(text) for text in beats if text is not None]

    def refuse_message(self, body: str, reason: str) -> None:
        """Keeps a message that no task can do, so that it is seen and not tried again."""
        entry = json.dumps({"at": utc_now(), "reason": reason, "body": body}, ensure_ascii=False)
        self._run("lpush", self._key("refused"), entry)
        self._run("ltrim", self._key("refused"), 0, MAX_REFUSED - 1)

    def refused_messages(self) -> list[dict[str, str]]:
        return [json.loads(entry) for entry in self._run("lrange", self._key("refused"), 0, -1)]

    # --- plumbing

    def _stop(self, job_id: str, fact: str, value: str) -> bool:
        answer = self._transition("stop", job_id, "", fact, value)
        if answer == "unknown":
            raise NotFound(f"no job {job_id}; see `jobctl list`")
        return answer == "stopped"

    def _transition(self, verb: str, job_id: str, shard: int | str = "", *arguments: object) -> str | int:
        with translated(self._url):
            return cast(str | int, self._lua(self._lua_keys(job_id), [verb, shard, *arguments]))

    def _run(self, command: str, *arguments: object) -> Any:
        with translated(self._url):
            return getattr(self._redis, command)(*arguments)

    def _pipelined(self, command: str, calls: Sequence[Iterable[object]]) -> list[Any]:
        with translated(self._url):
            pipe = self._redis.pipeline(transaction=False)
            for arguments in calls:
                getattr(pipe, command)(*arguments)
            return list(pipe.execute())

    def _key(self, name: str) -> str:
        return self._settings.key_prefix + name

    def _job_key(self, job_id: str) -> str:
        return self._key(f"job:{job_id}")

    def _shard_keys(self, job_id: str) -> list[str]:
        return [f"{self._job_key(job_id)}:{name}" for name in SHARD_HASHES]

    def _lua_keys(self, job_id: str) -> list[str]:
        return [self._key("open"), self._job_key(job_id)]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _ints(mapping: dict[str, str]) -> dict[int, int]:
    return {int(shard): int(number) for shard, number in mapping.items()}
