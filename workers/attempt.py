"""Attempt: one try at a shard, with all that its steps need."""

from dataclasses import dataclass

from jobs.storage.layout import Layout
from schemas.plan import Plan, ShardPlan
from workers.context import WorkerContext
from workers.lease import Lease


@dataclass(frozen=True, slots=True)
class Attempt:
    """number: unique to the shard, and higher than those of earlier attempts. generation: the one it makes."""

    context: WorkerContext
    plan: Plan
    shard: ShardPlan
    layout: Layout
    lease: Lease
    number: int
    generation: int = 0

    def check(self) -> None:
        """Between rounds. Raises WorkerStopping, JobCancelled, LeaseLost."""
        self.context.stop.check()
        self.lease.check()
