"""Outcomes in the order of a part: rows as in the input, each with its samples from 0 on."""

from collections.abc import Collection, Mapping

from schemas.errors import ShardRetryable
from schemas.generation import RowOutcome, SampleKey
from schemas.plan import ShardPlan


def ordered_outcomes(
    shard: ShardPlan, rows: Collection[int], outcomes: Mapping[SampleKey, RowOutcome]
) -> list[RowOutcome]:
    """Outcomes by row and sample. rows: row_index of those of the shard that were to be generated.

    Raises ShardRetryable where one of them has no outcome, or an outcome is out of place.
    """
    missing = [row_index for row_index in rows if (row_index, 0) not in outcomes]
    misplaced = sorted(key for key in outcomes if not _is_in_place(rows, outcomes, key))
    if missing or misplaced:
        raise ShardRetryable(
            f"shard {shard.shard_index}: {len(missing)} rows without outcome {missing[:3]}, "
            f"{len(misplaced)} outcomes out of place {misplaced[:3]}"
        )
    return [outcomes[key] for key in sorted(outcomes)]


def _is_in_place(rows: Collection[int], outcomes: Mapping[SampleKey, RowOutcome], key: SampleKey) -> bool:
    """Whether it is of one of the rows, and after the sample before it. A row that failed has a single outcome."""
    row_index, sample_index = key
    if outcomes[key].key != key or row_index not in rows or sample_index < 0:
        return False
    if sample_index == 0:
        return True
    before = outcomes.get((row_index, sample_index - 1))
    return before is not None and before.error is None and outcomes[key].error is None
