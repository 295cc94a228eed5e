"""Outcomes in the order of a part: rows as in the input, each with its samples from 0 on."""

from collections.abc import Mapping

from schemas.errors import ShardRetryable
from schemas.generation import RowOutcome, SampleKey
from schemas.plan import ShardPlan


def ordered_outcomes(shard: ShardPlan, outcomes: Mapping[SampleKey, RowOutcome]) -> list[RowOutcome]:
    """Outcomes by row and sample. Raises ShardRetryable where a row of the shard has none, or any is out of place."""
    missing = [row for row in range(shard.first_row, shard.end_row) if (row, 0) not in outcomes]
    misplaced = sorted(key for key in outcomes if not _is_in_place(shard, outcomes, key))
    if missing or misplaced:
        raise ShardRetryable(
            f"shard {shard.shard_index}: {len(missing)} rows without outcome {missing[:3]}, "
            f"{len(misplaced)} outcomes out of place {misplaced[:3]}"
        )
    return [outcomes[key] for key in sorted(outcomes)]


def _is_in_place(shard: ShardPlan, outcomes: Mapping[SampleKey, RowOutcome], key: SampleKey) -> bool:
    """Whether it is of a row of the shard, and after the sample before it. A row that failed has a single outcome."""
    row_index, sample_index = key
    if outcomes[key].key != key or not shard.first_row <= row_index < shard.end_row or sample_index < 0:
        return False
    if sample_index == 0:
        return True
    before = outcomes.get((row_index, sample_index - 1))
    return before is not None and before.error is None and outcomes[key].error is None
