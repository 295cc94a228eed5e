"""The state of jobs and shards in Redis. The only file, with its Lua, that knows the keys; the Lua has their map."""

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from jobs.clock import utc_now
from jobs.control.connection import connect, translated
from jobs.control.state import (
    DeadShard,
    Ending,
    FailedKind,
    JobRecord,
    ShardProgress,
    ShardStates,
    WorkerRecord,
)
from jobs.settings import Settings
from schemas.errors import NotFound
from schemas.limits import LIMITS
from schemas.message import ShardMessage

LUA = Path(__file__).with_suffix(".lua").read_text(encoding="utf-8")
RECORD_SECONDS = 30 * 24 * 3600  # an ended job's record; its output directory keeps the rest
HEARTBEAT_SECONDS = 20.0
LONGEST_WAIT_SECONDS = 300.0
MAX_REFUSED, MAX_REASON_CHARS, MAX_BODY_CHARS = 1000, 1000, 10_000
LONGEST_LOOK_SECONDS = 60.0
HASHES = ("delivery", "taken", "claimed_at", "failures", "errors", "retry_at", "dead", "live", "last", "clock")

TakeAnswer = Literal["taken", "held", "stale", "cancelled", "failed", "unknown"]
RenewAnswer = Literal["held", "lost", "cancelled", "failed", "unknown"]
Outcome = Literal["done", "forgiven", "failed", "dead"]
PurgeAnswer = Literal["purged", "alive", "open"]


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
        """Remembers the job and lets it run. Registering it again changes its output and limits, and nothing else.

        Its timeout counts from now on.
        """
        key = self._job_key(record.job_id)
        facts = record.model_dump(mode="json", exclude_none=True)
        with translated(self._url):
            pipe = self._redis.pipeline(transaction=True)
            pipe.hdel(key, *LIMITS)
            pipe.delete(f"{key}:clock")
            for name, value in facts.items():
                set_fact = pipe.hset if name in ("output", *LIMITS) else pipe.hsetnx
                set_fact(key, name, value)
            pipe.zadd(self._key("jobs"), {record.job_id: time.time() * 1000}, nx=True)
            pipe.sadd(self._key("open"), record.job_id)
            for name in self._job_keys(record.job_id):
                pipe.persist(name)
            pipe.execute()

    def reopen_job(self, job_id: str) -> None:
        """Takes back what stopped the job, and gives its dead letters new attempts. Raises NotFound."""
        self.job(job_id)
        self._transition("open", job_id, "", *HASHES)

    def let_run(self, job_id: str) -> None:
        """Takes back what stopped the job; its dead letters stay. Raises NotFound."""
        self.job(job_id)
        self._transition("let_run", job_id, "", *HASHES)

    def job(self, job_id: str) -> JobRecord:
        """Raises NotFound."""
        facts = self._run("hgetall", self._job_key(job_id))
        if not facts:
            raise _unknown(job_id)
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
        return self._stop(job_id, "cancelled_at", utc_now()) == "stopped"

    def fail_job(self, job_id: str, message: str, kind: FailedKind = "refused") -> bool:
        """It is given up, and `message` says why in one line. False where it had ended. Raises NotFound."""
        return self._stop(job_id, "failed", message, kind) == "stopped"

    def seconds_taken(self, job_id: str) -> float:
        """The time that a job with a timeout has taken, by the broker's clock and from look to look.

        Of the time between two looks at most LONGEST_LOOK_SECONDS counts, and none where the clock went back: a clock
        that is set costs the job a minute at most, and so does a night in which nobody looked.
        """
        return int(self._transition("look", job_id, "", _ms(LONGEST_LOOK_SECONDS))) / 1000

    def end_job(self, job_id: str, ending: Ending, num_reopened: int | None = None) -> bool:
        """Nothing is left to do. Its record is kept for RECORD_SECONDS. Raises NotFound.

        num_reopened: the record's when the ending was seen; where the job was let run again since, nothing changes.
        """
        answer = self._stop(job_id, "ended", ending, "" if num_reopened is None else num_reopened)
        if answer != "reopened":
            self._pipelined("expire", [[key, RECORD_SECONDS] for key in self._job_keys(job_id)])
        return answer == "stopped"

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
            dead={int(shard): DeadShard.from_json(text).error for shard, text in dead.items()},
        )

    def dead_shards(self, job_id: str) -> dict[int, DeadShard]:
        """The job's dead letters by shard index, in order."""
        letters = self._run("hgetall", f"{self._job_key(job_id)}:dead")
        return {shard: DeadShard.from_json(letters[str(shard)]) for shard in sorted(map(int, letters))}

    def revive_shard(self, job_id: str, shard: int) -> bool:
        """Gives a dead shard new attempts, and lets its job run; False where it is not dead."""
        return self._transition("revive", job_id, shard, *HASHES) == "open"

    def purge_shard(self, job_id: str, shard: int) -> PurgeAnswer:
        """Forgets a dead letter of a job that has ended; the job's rows are missing as before."""
        return cast(PurgeAnswer, self._transition("purge", job_id, shard))

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

    def release_lease(
        self,
        job_id: str,
        shard: int,
        owner: str,
        outcome: Outcome,
        error: str = "",
        progress: ShardProgress | None = None,
    ) -> None:
        """`failed` counts against max_attempts, unless rows were added; `forgiven` does not; `dead`: no other may help.

        progress: the attempt's last, where it is not what the last renewal said.
        """
        limits = _ms(self._settings.retry_seconds), _ms(LONGEST_WAIT_SECONDS), self._settings.max_attempts
        last = progress.to_json() if progress is not None else ""
        self._transition("release", job_id, shard, owner, outcome, error, *limits, last)

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
        """Keeps a message that no task can do, cut where it is long, so that it is seen and not tried again."""
        kept = {"at": utc_now(), "reason": reason[:MAX_REASON_CHARS], "body": body[:MAX_BODY_CHARS]}
        entry = json.dumps(kept, ensure_ascii=False).encode(errors="replace").decode()
        self._run("lpush", self._key("refused"), entry)
        self._run("ltrim", self._key("refused"), 0, MAX_REFUSED - 1)

    def refused_messages(self) -> list[dict[str, str]]:
        """The newest first. id: names the message in `forget_message`. at: ISO 8601, UTC. reason, body: texts."""
        entries = self._run("lrange", self._key("refused"), 0, -1)
        return [{"id": _id_of(entry), **json.loads(entry)} for entry in entries]

    def forget_message(self, message_id: str) -> bool:
        """False where there is no such refused message."""
        entries = self._run("lrange", self._key("refused"), 0, -1)
        named = [entry for entry in entries if _id_of(entry) == message_id]
        return any(self._run("lrem", self._key("refused"), 0, entry) for entry in named)

    # --- plumbing

    def _stop(self, job_id: str, fact: str, *values: str | int) -> str | int:
        answer = self._transition("stop", job_id, "", fact, *values)
        if answer == "unknown":
            raise _unknown(job_id)
        return answer

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

    def _job_keys(self, job_id: str) -> list[str]:
        """All but the leases, which pass by themselves."""
        key = self._job_key(job_id)
        return [key, *(f"{key}:{name}" for name in HASHES)]

    def _lua_keys(self, job_id: str) -> list[str]:
        return [self._key("open"), self._job_key(job_id)]


def _unknown(job_id: str) -> NotFound:
    return NotFound(f"no job {job_id}; see `jobctl list`, or `jobctl resume` its output directory")


def _id_of(entry: str) -> str:
    return hashlib.sha256(entry.encode()).hexdigest()[:12]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _ints(mapping: dict[str, str]) -> dict[int, int]:
    return {int(shard): int(number) for shard, number in mapping.items()}
