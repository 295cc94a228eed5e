"""Saved rows: they come back exactly, and a torn or damaged part is as if it had not been saved."""

import logging
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.storage.checkpoint import append_rows, clear, read_finished
from jobs.storage.layout import Layout
from schemas.errors import ShardRetryable
from schemas.generation import RowOutcome, RowStatistics
from schemas.plan import ShardPlan
from tests.storage import by_key, failed_outcome, ok_outcome

SHARD = ShardPlan(shard_index=3, first_row=10, num_rows=10)

counts = st.integers(0, 2**31 - 1)
any_text = st.text(st.characters(exclude_categories=()))  # lone surrogates too
statistics = st.builds(RowStatistics, counts, counts, counts, counts, counts, st.lists(counts, max_size=4))
outcomes = st.builds(
    RowOutcome,
    row_index=st.integers(10, 19),
    sample_index=st.integers(0, 3),
    error=st.none() | st.tuples(any_text, any_text),
    text=st.none() | any_text,
    finish_reason=st.sampled_from([None, "stop", "length", "error"]),
    num_prompt_tokens=st.none() | counts,
    token_ids=st.lists(counts, max_size=5).map(tuple),
    seed=st.none() | st.integers(0, 2**63 - 1),
    statistics=st.none() | statistics,
)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def saved_parts(layout: Layout) -> list[Path]:
    return sorted(layout.wip_dir(3).iterdir())


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(outcomes, unique_by=lambda outcome: outcome.key))
def test_outcomes_come_back_exactly(layout: Layout, saved: list[RowOutcome]) -> None:
    clear(layout, SHARD)
    append_rows(layout, SHARD, 1, saved)
    failed = {outcome.row_index for outcome in saved if outcome.error is not None}
    expected = [outcome for outcome in saved if outcome.error is not None or outcome.row_index not in failed]
    assert read_finished(layout, SHARD) == by_key(expected)


def test_samples_of_every_attempt_count_and_one_saved_twice_counts_once(layout: Layout) -> None:
    append_rows(layout, SHARD, 1, [ok_outcome(10), ok_outcome(11)])
    append_rows(layout, SHARD, 1, [failed_outcome(12)])
    append_rows(layout, SHARD, 2, [ok_outcome(11), ok_outcome(11, sample_index=2), ok_outcome(13)])
    samples = [ok_outcome(10), ok_outcome(11), ok_outcome(11, sample_index=2), failed_outcome(12), ok_outcome(13)]
    assert read_finished(layout, SHARD) == by_key(samples)


def test_the_same_rows_saved_twice_are_one_part(layout: Layout) -> None:
    for _ in range(2):
        append_rows(layout, SHARD, 1, [ok_outcome(10)])
    assert len(saved_parts(layout)) == 1


def test_a_shard_without_saved_rows_has_none(layout: Layout) -> None:
    assert read_finished(layout, SHARD) == {}
    append_rows(layout, SHARD, 1, [])
    assert os.listdir(layout.output) == []


def test_any_damage_to_a_part_loses_that_part_alone(layout: Layout, caplog: pytest.LogCaptureFixture) -> None:
    append_rows(layout, SHARD, 1, [ok_outcome(10)])
    append_rows(layout, SHARD, 2, [ok_outcome(11)])
    first, _ = saved_parts(layout)
    whole = first.read_bytes()
    places = range(0, len(whole), 97)
    damaged = [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in places]
    torn = [whole[:length] for length in (0, 4, len(whole) - 1)]
    for data in (*damaged, *torn):
        first.write_bytes(data)
        with caplog.at_level(logging.WARNING):
            assert read_finished(layout, SHARD) == by_key([ok_outcome(11)])
        assert f"{first} is torn or damaged" in caplog.text
        caplog.clear()


def test_half_written_parts_and_rows_of_other_shards_are_ignored(layout: Layout) -> None:
    append_rows(layout, SHARD, 1, [ok_outcome(9), ok_outcome(10), ok_outcome(20)])
    (layout.wip_dir(3) / ".1-abc.parquet.x.tmp").write_bytes(b"PAR1")
    assert read_finished(layout, SHARD) == by_key([ok_outcome(10)])


def test_clearing_removes_the_shards_rows_and_may_be_repeated(layout: Layout) -> None:
    other = SHARD.model_copy(update={"shard_index": 4})
    for shard in (SHARD, other):
        append_rows(layout, shard, 1, [ok_outcome(10)])
    for _ in range(2):
        clear(layout, SHARD)
        assert not layout.wip_dir(3).exists()
    assert read_finished(layout, other) == by_key([ok_outcome(10)])


def test_a_full_disk_ends_the_attempt_and_leaves_no_part(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    layout.wip_dir(3).mkdir(parents=True)
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(ShardRetryable, match=r"shard 3: cannot save finished rows: .*No space left"):
        append_rows(layout, SHARD, 1, [ok_outcome(10)])
    assert saved_parts(layout) == []
