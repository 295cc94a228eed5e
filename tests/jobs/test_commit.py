"""The commit of shards and jobs: what attempts, receipts and manifests promise without a crash."""

import os
from pathlib import Path
from typing import Any

import pytest

from jobs.plan.planning import save_plan
from jobs.storage.commit import begin_attempt, commit_shard, new_staged_path, prepare_shard
from jobs.storage.durable import temp_path
from jobs.storage.finish import commit_job, read_manifest
from jobs.storage.layout import Layout
from jobs.storage.receipts import committed_shards, missing_rows, read_receipts, roll_forward
from schemas.errors import CommitConflict, CommitUnknown, InvalidJob, LeaseLost, NotFound, ShardFailed, ShardRetryable
from schemas.plan import Plan, ShardPlan
from schemas.receipt import Receipt, ShardStatistics
from tests.storage import (
    by_key,
    check_finished,
    failed_outcome,
    leftovers,
    outcomes_of,
    plan_of,
    prompts,
    receipt_of,
    run_attempt,
    spec_of,
    write_parquet,
)
from workers.reader import read_shard
from workers.writer import write_part


@pytest.fixture
def job(tmp_path: Path) -> tuple[Layout, Plan]:
    """A job of three shards in two Hive directories."""
    for day, num_rows in (("01", 5), ("02", 2)):
        write_parquet(tmp_path / "in" / f"day={day}" / "x.parquet", prompts(num_rows))
    plan = plan_of(spec_of(tmp_path / "in", tmp_path / "out", shard_rows=3))
    layout = Layout(tmp_path / "out")
    save_plan(layout, plan)
    return layout, plan


def staged(layout: Layout, plan: Plan, shard: ShardPlan, attempt: int, **changes: Any) -> tuple[Receipt, Path]:
    """A part that this attempt has written and checked, and the receipt it would publish."""
    path = new_staged_path(layout, shard, attempt)
    facts = write_part(path, plan, shard, read_shard(plan, shard), outcomes_of(shard), {})
    return receipt_of(layout, plan, shard, attempt, path, facts).model_copy(update=changes), path


# Attempts


def test_attempt_numbers_grow_and_never_repeat(job: tuple[Layout, Plan]) -> None:
    layout, _ = job
    assert [begin_attempt(layout, 1) for _ in range(3)] == [1, 2, 3]
    assert begin_attempt(layout, 11) == 1
    os.unlink(layout.attempt_path(1, 2))
    assert begin_attempt(layout, 1) == 4
    prepare_shard(layout, job[1].shards[1], 4)
    assert begin_attempt(layout, 1) == 5


def test_a_number_that_another_process_has_just_claimed_is_passed_over(
    job: tuple[Layout, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, _ = job
    layout.attempt_path(0, 1).touch()
    monkeypatch.setattr("jobs.storage.commit._attempts", lambda *_: [])
    assert begin_attempt(layout, 0) == 2


def test_an_output_directory_that_is_gone_ends_the_attempt(tmp_path: Path) -> None:
    with pytest.raises(ShardRetryable, match=r"shard 0: cannot write to .*/gone: "):
        begin_attempt(Layout(tmp_path / "gone"), 0)


# Shards


def test_a_committed_shard_has_its_part_in_its_hive_directory(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    receipt = run_attempt(layout, plan, plan.shards[2])
    assert receipt.part == "day=02/part-00002.parquet"
    assert (layout.output / receipt.part).stat().st_size == receipt.size_bytes
    assert read_receipts(layout) == {2: receipt}
    assert committed_shards(layout) == {2}
    assert leftovers(layout) == []


def test_a_shard_that_is_committed_is_not_done_again(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    first = run_attempt(layout, plan, plan.shards[0])
    assert run_attempt(layout, plan, plan.shards[0]) == first
    assert begin_attempt(layout, 0) == 3


def test_a_commit_that_landed_before_its_answer_was_lost_is_a_success(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    receipt, path = staged(layout, plan, plan.shards[0], begin_attempt(layout, 0))
    commit_shard(layout, plan, plan.shards[0], receipt, path)
    os.rename(layout.part_path(plan.shards[0]), path)
    assert commit_shard(layout, plan, plan.shards[0], receipt, path) == receipt
    assert layout.part_path(plan.shards[0]).exists()
    assert leftovers(layout) == []


def test_a_second_commit_of_a_shard_is_a_conflict_and_drops_its_own(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    shard = plan.shards[0]
    attempts = [begin_attempt(layout, 0) for _ in range(2)]
    (first, first_path), (second, second_path) = (staged(layout, plan, shard, attempt) for attempt in attempts)
    commit_shard(layout, plan, shard, first, first_path)
    os.rename(layout.part_path(shard), first_path)  # as if the first had died before it put the part in place
    with pytest.raises(CommitConflict, match="shard 0: attempt 1 has committed it"):
        commit_shard(layout, plan, shard, second, second_path)
    assert read_receipts(layout) == {0: first}
    assert layout.part_path(shard).exists()
    assert leftovers(layout) == []


def test_a_frozen_attempt_that_wakes_after_the_next_one_began_cannot_publish(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    shard = plan.shards[0]
    old, new = begin_attempt(layout, 0), begin_attempt(layout, 0)
    assert prepare_shard(layout, shard, old) is None
    receipt, path = staged(layout, plan, shard, old)
    assert prepare_shard(layout, shard, new) is None
    with pytest.raises(LeaseLost, match="shard 0: a later attempt than 1 holds it"):
        commit_shard(layout, plan, shard, receipt, path)
    with pytest.raises(LeaseLost):
        prepare_shard(layout, shard, old)
    assert committed_shards(layout) == set()
    receipt, path = staged(layout, plan, shard, new)
    assert commit_shard(layout, plan, shard, receipt, path) == receipt


def test_an_attempt_that_only_claimed_a_number_fences_nobody(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    attempt = begin_attempt(layout, 0)
    prepare_shard(layout, plan.shards[0], attempt)
    begin_attempt(layout, 0)
    receipt, path = staged(layout, plan, plan.shards[0], attempt)
    assert commit_shard(layout, plan, plan.shards[0], receipt, path) == receipt


def test_preparing_clears_earlier_attempts_of_the_shard_and_nothing_else(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    kept = [
        layout.staged_path(0, 3, "later"),
        layout.staged_path(1, 1, "other"),
        layout.temp_receipt_path(1, 1, "other"),
    ]
    torn = layout.staged_path(0, 1, "b")
    gone = [layout.staged_path(0, 1, "a"), temp_path(torn), layout.temp_receipt_path(0, 2, "a")]
    for path in (*kept, *gone):
        path.touch()
    prepare_shard(layout, plan.shards[0], attempt=3)
    assert [path.exists() for path in (*kept, *gone)] == [True] * 3 + [False] * 3


def test_preparing_never_removes_a_committed_part_that_is_still_staged(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    shard = plan.shards[0]
    receipt = run_attempt(layout, plan, shard)
    os.rename(layout.part_path(shard), layout.staged_dir / receipt.staged)
    assert prepare_shard(layout, shard, attempt=2) == receipt
    assert layout.part_path(shard).exists()


@pytest.mark.parametrize("lands", [True, False])
def test_a_lost_answer_is_unknown_until_the_next_attempt_looks(
    job: tuple[Layout, Plan], monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    layout, plan = job
    link = os.link

    def lose_the_answer(source: Path, target: Path) -> None:
        if lands:
            link(source, target)
        raise OSError(5, "Input/output error")

    receipt, path = staged(layout, plan, plan.shards[0], begin_attempt(layout, 0))
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", lose_the_answer)
        with pytest.raises(CommitUnknown, match="Input/output error"):
            commit_shard(layout, plan, plan.shards[0], receipt, path)
    assert prepare_shard(layout, plan.shards[0], begin_attempt(layout, 0)) == (receipt if lands else None)
    assert leftovers(layout) == []


def test_io_errors_while_publishing_end_the_attempt(job: tuple[Layout, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    layout, plan = job

    def no_space(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    receipt, path = staged(layout, plan, plan.shards[0], begin_attempt(layout, 0))
    monkeypatch.setattr("jobs.storage.commit.write_synced", no_space)
    with pytest.raises(ShardRetryable, match=r"shard 0: cannot write to .*/out: .*No space left"):
        commit_shard(layout, plan, plan.shards[0], receipt, path)


@pytest.mark.parametrize(
    "changes",
    [
        {"job_id": "job-x"},
        {"shard_index": 1},
        {"num_rows": 2},
        {"num_ok": 2},
        {"num_samples": 2, "num_ok": 2},
        {"num_samples": 4},
        {"staged": "x"},
        {"part": "x"},
    ],
)
def test_a_receipt_that_is_not_of_this_part_is_refused(job: tuple[Layout, Plan], changes: dict[str, Any]) -> None:
    layout, plan = job
    receipt, path = staged(layout, plan, plan.shards[0], begin_attempt(layout, 0), **changes)
    with pytest.raises(ValueError, match="is not one of"):
        commit_shard(layout, plan, plan.shards[0], receipt, path)
    assert committed_shards(layout) == set()


# Receipts


def test_the_newest_generation_of_a_shard_counts(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    shard = plan.shards[0]
    run_attempt(layout, plan, shard)
    attempt = begin_attempt(layout, 0)
    assert prepare_shard(layout, shard, attempt) is not None
    second, path = staged(layout, plan, shard, attempt, generation=1)
    commit_shard(layout, plan, shard, second, path)
    assert read_receipts(layout) == {0: second}
    assert prepare_shard(layout, shard, begin_attempt(layout, 0)) == second
    assert sorted(os.listdir(layout.receipts_dir)) == ["00000.0.json", "00000.1.json"]


def test_missing_rows_are_ranges_of_adjoining_shards(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    assert missing_rows(plan, {}) == [range(7)]
    receipt = run_attempt(layout, plan, plan.shards[1])
    assert missing_rows(plan, {1: receipt}) == [range(3), range(5, 7)]
    assert missing_rows(plan, dict.fromkeys(range(3), receipt)) == []


def test_a_committed_part_that_was_deleted_is_named(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    receipt = run_attempt(layout, plan, plan.shards[0])
    layout.part_path(plan.shards[0]).unlink()
    with pytest.raises(ShardFailed, match=r"shard 0 is committed, but .*day=01/part-00000\.parquet is gone"):
        roll_forward(layout, receipt)


def test_damaged_and_missing_receipts_are_named(job: tuple[Layout, Plan], tmp_path: Path) -> None:
    layout, _ = job
    layout.receipt_path(0).write_text("{")
    with pytest.raises(InvalidJob, match=r"00000\.0\.json is damaged: Receipt.*; remove it, and jobctl resume"):
        read_receipts(layout)
    with pytest.raises(NotFound, match="its receipts are gone"):
        read_receipts(Layout(tmp_path / "gone"))


# Jobs


def test_a_job_is_finished_with_its_last_receipt_and_not_before(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    for shard in plan.shards:
        assert commit_job(layout, plan) is None
        assert not layout.success_path.exists()
        run_attempt(layout, plan, shard)
    manifest = commit_job(layout, plan)
    check_finished(layout, plan, manifest)
    assert read_manifest(layout) == manifest


def test_finishing_again_changes_nothing(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    for shard in plan.shards:
        run_attempt(layout, plan, shard)
    first = commit_job(layout, plan)
    written = layout.manifest_path.stat()
    assert commit_job(layout, plan) == first
    assert layout.manifest_path.stat() == written


def test_the_manifest_sums_the_receipts(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    for shard in plan.shards:
        attempt = begin_attempt(layout, shard.shard_index)
        path = new_staged_path(layout, shard, attempt)
        outcomes = outcomes_of(shard) | by_key([failed_outcome(shard.first_row)])
        facts = write_part(path, plan, shard, read_shard(plan, shard), outcomes, {})
        receipt = receipt_of(layout, plan, shard, attempt, path, facts)
        statistics = ShardStatistics(num_prompt_tokens=10, generate_seconds=0.5)
        commit_shard(layout, plan, shard, receipt.model_copy(update={"statistics": statistics}), path)
    manifest = commit_job(layout, plan)
    assert manifest is not None
    assert (manifest.num_rows, manifest.num_samples, manifest.num_ok, manifest.num_failed) == (7, 7, 4, 3)
    assert manifest.statistics == ShardStatistics(num_prompt_tokens=30, generate_seconds=1.5)
    assert manifest.finished_at == max(receipt.committed_at for receipt in manifest.receipts)
    assert manifest.spec_sha256 == plan.spec.digest()


def test_the_end_of_the_job_removes_what_killed_attempts_left(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    for shard in plan.shards:
        run_attempt(layout, plan, shard)
    left = [layout.staged_path(0, 1, "x"), layout.temp_receipt_path(0, 1, "x"), layout.wip_path(1, 9, "x")]
    left.append(temp_path(layout.staged_path(1, 1, "x")))
    left.append(layout.control_dir / "._manifest.json.0123abcd-0123abcd.tmp")
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    check_finished(layout, plan, commit_job(layout, plan))
    assert not any(path.exists() for path in left)


def test_the_end_of_the_job_leaves_what_later_attempts_and_generations_have_begun(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    for shard in plan.shards:
        run_attempt(layout, plan, shard)
    later = [layout.staged_path(0, 2, "x"), layout.temp_receipt_path(1, 2, "x"), layout.wip_path(1, 2, "x", 1)]
    for path in later:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert commit_job(layout, plan) is not None
    assert all(path.exists() for path in later)


def test_a_job_without_rows_ends_with_one_empty_part(tmp_path: Path) -> None:
    plan = plan_of(spec_of(write_parquet(tmp_path / "in.parquet", {"prompt": []}), tmp_path / "out"))
    layout = Layout(tmp_path / "out")
    save_plan(layout, plan)
    assert commit_job(layout, plan) is None
    run_attempt(layout, plan, plan.shards[0])
    check_finished(layout, plan, commit_job(layout, plan))
    assert os.listdir(layout.output) and layout.part_path(plan.shards[0]).exists()
