"""Generations: what a retry asks for, which shards lack it, and that no part is taken for one of another generation."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.plan.planning import save_plan
from jobs.retry import ask_again
from jobs.storage.commit import begin_attempt, prepare_shard
from jobs.storage.finish import commit_job, finished_manifest
from jobs.storage.generations import missing_shards, want_generations, wanted_generation, wanted_generations
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipts, roll_forward
from jobs.storage.results import read_results
from schemas.errors import LeaseLost, ShardFailed
from schemas.generation import RowOutcome, SampleKey
from schemas.plan import Plan
from schemas.receipt import Manifest
from tests.storage import (
    by_key,
    check_finished,
    failed_outcome,
    ok_outcome,
    outcomes_of,
    plan_of,
    prompts,
    run_attempt,
    spec_of,
    write_parquet,
)
from workers.kept_rows import read_kept


@pytest.fixture
def job(tmp_path: Path) -> tuple[Layout, Plan]:
    """A finished job of two shards; the first row of the first one has failed."""
    plan = plan_of(spec_of(write_parquet(tmp_path / "in.parquet", prompts(6)), tmp_path / "out", shard_rows=3))
    layout = Layout(tmp_path / "out")
    save_plan(layout, plan)
    outcomes = outcomes_of(plan.shards[0]) | by_key([failed_outcome(0)])
    run_attempt(layout, plan, plan.shards[0], outcomes=outcomes)
    run_attempt(layout, plan, plan.shards[1])
    assert commit_job(layout, plan) is not None
    return layout, plan


def test_a_job_that_was_never_retried_wants_the_first_generation(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    assert not layout.generations_dir.exists()
    assert (wanted_generations(layout), wanted_generation(layout, 1)) == ({}, 0)
    assert missing_shards(layout, plan) == []


def test_a_shard_is_missing_until_it_has_a_receipt_of_the_wanted_generation(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    for _ in range(2):
        assert set(ask_again(layout, plan)) == {0}
        assert sorted(os.listdir(layout.generations_dir)) == ["00000.1"]
        assert missing_shards(layout, plan) == [0]
        assert not layout.success_path.exists()
        assert commit_job(layout, plan) is None
    run_attempt(layout, plan, plan.shards[0])
    assert missing_shards(layout, plan) == []
    check_finished(layout, plan, commit_job(layout, plan))
    assert ask_again(layout, plan) == {}


def test_the_newest_marker_counts(job: tuple[Layout, Plan]) -> None:
    layout, _ = job
    for generation in (1, 2):
        want_generations(layout, {0: generation})
    assert wanted_generations(layout) == {0: 2}


def test_an_attempt_does_nothing_where_the_wanted_generation_is_there(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    shard, first = plan.shards[0], read_receipts(layout)[0]
    assert prepare_shard(layout, shard, begin_attempt(layout, 0)) == first
    ask_again(layout, plan)
    assert prepare_shard(layout, shard, begin_attempt(layout, 0)) is None
    second = run_attempt(layout, plan, shard)
    assert second.generation == 1
    assert prepare_shard(layout, shard, begin_attempt(layout, 0)) == second


@pytest.mark.parametrize("name", ["receipts", "success", "manifest"])
def test_a_job_is_not_finished_by_what_an_earlier_generation_left(job: tuple[Layout, Plan], name: str) -> None:
    layout, plan = job
    old = layout.manifest_path.read_bytes()
    ask_again(layout, plan)
    if name != "receipts":
        run_attempt(layout, plan, plan.shards[0])
    layout.success_path.touch()
    assert finished_manifest(layout, plan, read_receipts(layout)) is None
    if name == "manifest":
        assert commit_job(layout, plan) is not None
        layout.manifest_path.write_bytes(old)
        assert finished_manifest(layout, plan, read_receipts(layout)) is None
        check_finished(layout, plan, commit_job(layout, plan))
        assert layout.manifest_path.read_bytes() != old


def test_an_older_part_is_never_taken_for_a_newer_one(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    part, old = layout.part_path(plan.shards[0]), layout.part_path(plan.shards[0]).read_bytes()
    ask_again(layout, plan)
    receipt = run_attempt(layout, plan, plan.shards[0])
    part.write_bytes(old)
    with pytest.raises(ShardFailed, match=r"shard 0 is committed, but .*part-00000.parquet has \d+ bytes, not \d+"):
        roll_forward(layout, receipt)
    with pytest.raises(ShardFailed):
        commit_job(layout, plan)


def test_a_receipt_that_was_replaced_asks_for_nothing(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    first = read_receipts(layout)[0]
    ask_again(layout, plan)
    run_attempt(layout, plan, plan.shards[0])
    newer = layout.part_path(plan.shards[0]).read_bytes()
    roll_forward(layout, first)
    assert layout.part_path(plan.shards[0]).read_bytes() == newer


def flip_a_bit(part: Path) -> None:
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [flip_a_bit, lambda part: part.write_bytes(part.read_bytes() + b"x"), Path.unlink],
    ids=["flipped", "longer", "gone"],
)
def test_a_damaged_part_is_made_anew_and_nothing_is_copied_from_it(
    job: tuple[Layout, Plan], damage: Callable[[Path], None]
) -> None:
    layout, plan = job
    ask_again(layout, plan)
    damage(layout.part_path(plan.shards[0]))
    assert read_kept(layout, plan, plan.shards[0], generation=1) is None
    run_attempt(layout, plan, plan.shards[0])
    for shard in plan.shards[1:]:
        run_attempt(layout, plan, shard)
    check_finished(layout, plan, commit_job(layout, plan))


@pytest.mark.parametrize("damage", [flip_a_bit, Path.unlink], ids=["flipped", "gone"])
def test_a_part_without_failed_rows_is_asked_for_again_where_it_is_damaged(
    job: tuple[Layout, Plan], damage: Callable[[Path], None]
) -> None:
    layout, plan = job
    ask_again(layout, plan)
    for shard in plan.shards:
        run_attempt(layout, plan, shard)
    assert ask_again(layout, plan) == {}
    damage(layout.part_path(plan.shards[1]))
    assert ask_again(layout, plan).keys() == {1}
    run_attempt(layout, plan, plan.shards[1])
    check_finished(layout, plan, commit_job(layout, plan))


def test_an_attempt_that_was_overtaken_does_not_call_the_newer_part_damaged(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    ask_again(layout, plan)
    run_attempt(layout, plan, plan.shards[0])
    with pytest.raises(LeaseLost, match="shard 0: another attempt has just committed it"):
        read_kept(layout, plan, plan.shards[0], generation=1)


def test_results_that_are_read_while_a_retry_ends_are_the_newest(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    ask_again(layout, plan)
    results, receipts = read_results(layout, plan, ["row_index", "status"]), read_receipts(layout)
    run_attempt(layout, plan, plan.shards[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.storage.results.read_receipts", lambda layout: receipts)
        assert next(results).to_pydict() == {"row_index": [0, 1, 2], "status": ["ok", "ok", "ok"]}


# Rows


def outcomes(num_rows: int, failed: set[int], num_samples: int, round_number: int) -> dict[SampleKey, RowOutcome]:
    """Outcomes that differ from round to round."""
    tokens = (round_number, 7)
    found = (
        [failed_outcome(row, message=f"round {round_number}")]
        if row in failed
        else [ok_outcome(row, tokens, sample) for sample in range(num_samples)]
        for row in range(num_rows)
    )
    return by_key(outcome for of_row in found for outcome in of_row)


def run_all(layout: Layout, plan: Plan, of_rows: dict[SampleKey, RowOutcome]) -> Manifest:
    for shard in plan.shards:
        rows = range(shard.first_row, shard.end_row)
        run_attempt(layout, plan, shard, outcomes={key: one for key, one in of_rows.items() if key[0] in rows})
    manifest = commit_job(layout, plan)
    assert manifest is not None
    return manifest


def table_of(layout: Layout, plan: Plan) -> pa.Table:
    return pa.concat_tables(pq.ParquetFile(layout.part_path(shard)).read() for shard in plan.shards)


def samples_of(table: pa.Table) -> dict[tuple[int, int], dict[str, object]]:
    return {(row["o_row_index"], row["o_sample_index"]): row for row in table.to_pylist()}


ROWS = st.integers(1, 7)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_whatever_failed_is_done_again_and_the_rest_stays_as_it_was(data: st.DataObject) -> None:
    num_rows, num_samples, shard_rows = data.draw(ROWS), data.draw(st.integers(1, 3)), data.draw(ROWS)
    columns = prompts(num_rows) | {"kind": pa.array(["a", None] * num_rows)[:num_rows].dictionary_encode()}
    with tempfile.TemporaryDirectory() as directory:
        source = write_parquet(Path(directory) / "in" / "day=01" / "in.parquet", columns).parent.parent
        options = {"shard_rows": shard_rows, "n": num_samples, "output_prefix": "o_", "save_token_ids": True}
        plan = plan_of(spec_of(source, Path(directory) / "out", **options))
        layout = Layout(Path(directory) / "out")
        save_plan(layout, plan)
        failed = set(data.draw(st.sets(st.integers(0, num_rows - 1))))
        manifest = run_all(layout, plan, outcomes(num_rows, failed, num_samples, round_number=0))
        for round_number in (1, 2):
            before, old = samples_of(table_of(layout, plan)), manifest
            redone = {shard.shard_index for shard in plan.shards if failed & {*range(shard.first_row, shard.end_row)}}
            assert set(ask_again(layout, plan)) == redone
            again = failed & set(data.draw(st.sets(st.integers(0, num_rows - 1))))
            fresh = outcomes(num_rows, again, num_samples, round_number)
            manifest = run_all(layout, plan, fresh)
            check(layout, plan, manifest, before, fresh, failed)
            check_sums(manifest, old, fresh, failed)
            failed = again


def check(
    layout: Layout,
    plan: Plan,
    manifest: Manifest,
    before: dict[tuple[int, int], dict[str, object]],
    fresh: dict[SampleKey, RowOutcome],
    failed: set[int],
) -> None:
    """Keys once and in order; of rows that were ok the old samples, of the others the fresh ones."""
    table = table_of(layout, plan)
    after = samples_of(table)
    expected = sorted({key for key in before if key[0] not in failed} | {key for key in fresh if key[0] in failed})
    assert list(after) == expected and table.num_rows == len(expected) == manifest.num_samples
    for key, row in after.items():
        if key[0] not in failed:
            assert row == before[key]
            continue
        assert row["prompt"] == f"prompt {key[0]}" and row["kind"] == ("a", None)[key[0] % 2]
        told = fresh[key].error
        assert (row["o_error_message"], row["o_completion_token_ids"]) == (
            told and told[1],
            None if told else list(fresh[key].token_ids),
        )
    metadata = pq.ParquetFile(layout.part_path(plan.shards[0])).schema_arrow.metadata
    assert metadata[b"specbatch.job_id"] == plan.job_id.encode()


def check_sums(manifest: Manifest, old: Manifest, fresh: dict[SampleKey, RowOutcome], failed: set[int]) -> None:
    """Counts are those of the rows; statistics those of the old attempts and the new ones."""
    made = [one for key, one in fresh.items() if key[0] in failed and one.error is None]
    assert manifest.num_ok == old.num_ok + len(made)
    assert manifest.num_failed == len({key[0] for key in fresh if key[0] in failed and fresh[key].error})
    tokens = sum(len(one.token_ids) for one in made)
    assert manifest.statistics.num_completion_tokens == old.statistics.num_completion_tokens + tokens
