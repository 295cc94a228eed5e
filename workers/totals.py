"""Sums over the samples of a shard's rows."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Self

from schemas.generation import RowOutcome
from schemas.receipt import ShardStatistics


@dataclass(slots=True)
class RowTotals:
    """Sums over ok samples, named as in a receipt."""

    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    num_target_steps: int = 0
    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    num_cut_target_tokens: int = 0

    @classmethod
    def of(cls, outcomes: Iterable[RowOutcome]) -> Self:
        totals = cls()
        for outcome in outcomes:
            totals.add(outcome)
        return totals

    def add(self, outcome: RowOutcome) -> None:
        statistics = outcome.statistics
        if outcome.error is not None or statistics is None:
            return
        self.num_prompt_tokens += outcome.num_prompt_tokens or 0
        self.num_completion_tokens += len(outcome.token_ids)
        self.num_target_steps += statistics.num_target_steps
        self.num_spec_steps += statistics.num_spec_steps
        self.num_draft_tokens += statistics.num_draft_tokens
        self.num_accepted_draft_tokens += statistics.num_accepted_draft_tokens
        self.num_cut_target_tokens += statistics.num_cut_target_tokens

    def with_seconds(self, generate: float, load: float, commit: float, checkpoint: float = 0.0) -> ShardStatistics:
        return ShardStatistics(
            **asdict(self),
            generate_seconds=generate,
            load_seconds=load,
            commit_seconds=commit,
            checkpoint_seconds=checkpoint,
        )
