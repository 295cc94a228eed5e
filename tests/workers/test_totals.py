"""Sums over a shard's samples, as its receipt has them."""

from schemas.generation import RowOutcome, RowStatistics
from schemas.receipt import ShardStatistics
from tests.storage import failed_outcome
from workers.totals import RowTotals


def test_every_count_is_summed_over_ok_samples() -> None:
    samples = [
        RowOutcome(0, num_prompt_tokens=3, token_ids=(1,) * 5, statistics=RowStatistics(1, 2, 3, 4, 5)),
        RowOutcome(
            0, num_prompt_tokens=3, token_ids=(1,) * 7, statistics=RowStatistics(10, 20, 30, 40, 50), sample_index=1
        ),
        failed_outcome(1),
    ]
    assert RowTotals.of(samples).with_seconds(generate=1.0, load=2.0, commit=3.0, checkpoint=0.5) == ShardStatistics(
        num_prompt_tokens=6,
        num_completion_tokens=12,
        num_target_steps=11,
        num_spec_steps=22,
        num_draft_tokens=33,
        num_accepted_draft_tokens=44,
        num_cut_target_tokens=55,
        generate_seconds=1.0,
        checkpoint_seconds=0.5,
        load_seconds=2.0,
        commit_seconds=3.0,
    )
