"""What the store remembers, as values: a job's record, its shards, a running shard's progress, a heartbeat."""

from dataclasses import dataclass, field
from typing import Literal, Self

from schemas.job import DeviceKind
from schemas.limits import LIMITS, Limits
from schemas.plan import Plan
from schemas.values import Value

Ending = Literal["finished", "incomplete"]
FailedKind = Literal["refused", "errors", "timeout"]
Phase = Literal["starting", "loading", "generating", "committing"]


class JobRecord(Value):
    """What the broker knows of a job. The output directory knows the rest, and outlives the record.

    max_errors, timeout_seconds: its limits, which may be others than when it was planned.
    cancelled_at, failed, ended: when the user stopped it; why it was given up; how it ended.
    failed_kind: no worker can run it; too many rows failed; it took too long.
    num_reopened: how often it was let run again; it tells endings that are seen late.
    """

    job_id: str
    output: str
    input: str
    model: str
    device: DeviceKind
    num_rows: int
    num_shards: int
    created_at: str
    max_errors: str | None = None
    timeout_seconds: float | None = None
    cancelled_at: str | None = None
    failed: str | None = None
    failed_kind: FailedKind | None = None
    ended: Ending | None = None
    num_reopened: int = 0

    @classmethod
    def of(cls, plan: Plan) -> Self:
        return cls(
            job_id=plan.job_id,
            output=plan.spec.output,
            input=plan.spec.input,
            model=plan.spec.model,
            device=plan.spec.device,
            num_rows=plan.num_rows,
            num_shards=len(plan.shards),
            created_at=plan.created_at,
            max_errors=plan.spec.max_errors,
            timeout_seconds=plan.spec.timeout_seconds,
        )

    def with_limits(self, limits: Limits) -> Self:
        return self.model_copy(update={name: getattr(limits, name) for name in LIMITS})


class ShardProgress(Value):
    """A running attempt.

    num_rows_done, num_failed: rows finished, and those of them that failed; what earlier attempts saved is counted.
    num_tokens … seconds: of this attempt alone, since its generation began.
    """

    worker: str
    attempt: int | None = None
    phase: Phase = "starting"
    num_rows: int = 0
    num_rows_done: int = 0
    num_failed: int = 0
    num_tokens: int = 0
    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    seconds: float = 0.0


class DeadShard(Value):
    """A dead letter: why a shard was given up, and when, ms since 1970; who tried it last, which attempt that was."""

    error: str
    at_ms: int
    worker: str | None = None
    attempt: int | None = None


class WorkerRecord(Value):
    """A worker node's heartbeat. started_at: ISO 8601, UTC."""

    name: str
    device: DeviceKind
    queues: tuple[str, ...]
    hostname: str
    pid: int
    started_at: str


@dataclass(frozen=True, slots=True)
class ShardStates:
    """A job's shards as the store sees them, by shard index; a shard that was never enqueued is in none.

    deliveries: newest message enqueued. taken: newest message that an attempt was begun from.
    running: under a lease. failures: attempts in a row that added no row. errors: what the last failed one said.
    dead: why it was given up.
    """

    deliveries: dict[int, int] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)
    running: dict[int, ShardProgress] = field(default_factory=dict)
    failures: dict[int, int] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    dead: dict[int, str] = field(default_factory=dict)
