"""What the store remembers, as values: a job's record, its shards, a running shard's progress, a heartbeat."""

from dataclasses import dataclass, field
from typing import Literal, Self

from schemas.job import DeviceKind
from schemas.plan import Plan
from schemas.values import Value

Ending = Literal["finished", "incomplete"]
Phase = Literal["starting", "loading", "generating", "committing"]


class JobRecord(Value):
    """What the broker knows of a job. The output directory knows the rest, and outlives the record.

    cancelled_at, failed, ended: when the user stopped it; why no worker can run it; how it ended.
    """

    job_id: str
    output: str
    input: str
    model: str
    device: DeviceKind
    num_rows: int
    num_shards: int
    created_at: str
    cancelled_at: str | None = None
    failed: str | None = None
    ended: Ending | None = None

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
        )


class ShardProgress(Value):
    """A running attempt.

    num_rows_done: rows finished, those that earlier attempts saved among them.
    num_tokens … seconds: of this attempt alone, since its generation began.
    """

    worker: str
    attempt: int | None = None
    phase: Phase = "starting"
    num_rows: int = 0
    num_rows_done: int = 0
    num_tokens: int = 0
    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    seconds: float = 0.0


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
