"""What a running batch consists of, for the rounds and prefills that move it on."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from schemas.job import Verification
from workers.engine.buckets import Buckets
from workers.engine.draft_length import Controller, RoundFacts
from workers.engine.drafts.base import DraftSource
from workers.engine.planner.padding import Padding
from workers.engine.rows import Row, Rows
from workers.engine.runner import ModelRunner


@dataclass(frozen=True, slots=True)
class Batch:
    """One target with its cache (runner), the rows in their slots, and what drafts for them.

    num_rounds: by draft source and number of drafted tokens k. padding: of all forwards of the target.
    """

    runner: ModelRunner
    rows: Rows
    draft: DraftSource
    controller: Controller
    buckets: Buckets
    verification: Verification
    num_rounds: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    padding: Padding = field(default_factory=Padding)

    def observe(self, facts: RoundFacts) -> None:
        """Tells whoever learns from rounds."""
        self.num_rounds[facts.source][facts.k] += 1
        self.controller.observe(facts)
        self.draft.observe(facts)

    def release_finished(self) -> list[Row]:
        """Frees the slots of rows that have ended, and returns those rows."""
        finished = self.rows.release_finished()
        for row in finished:
            self.draft.finish(row.slot)
            self.controller.finish(row.slot)
        return finished
