"""gc: what ended attempts left goes, and nothing that anybody may still need, whenever it runs."""

import itertools
import os
import time
from pathlib import Path

import pytest

from jobs.plan.planning import save_plan
from jobs.storage.checkpoint import append_rows, read_finished
from jobs.storage.commit import begin_attempt, prepare_shard
from jobs.storage.finish import commit_job
from jobs.storage.gc import UNOWNED_SECONDS, collect_garbage, unknown_files
from jobs.storage.layout import Layout
from schemas.plan import Plan
from tests.jobs.test_races import END, STEPS, Attempt, check_one_commit
from tests.storage import leftovers, ok_outcome, plan_of, prompts, run_attempt, spec_of, write_parquet

pytestmark = pytest.mark.usefixtures("no_fsync")


@pytest.fixture
def job(tmp_path: Path) -> tuple[Layout, Plan]:
    layout = Layout(tmp_path / "out")
    spec = spec_of(write_parquet(tmp_path / "in.parquet", prompts(6)), layout.output, shard_rows=3)
    return layout, save_plan(layout, plan_of(spec))


def left(path: Path, num_bytes: int = 10, age_seconds: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(num_bytes))
    os.utime(path, (time.time() - age_seconds,) * 2)
    return path


def removed(layout: Layout, dry_run: bool = False) -> set[Path]:
    return {garbage.path for garbage in collect_garbage(layout, dry_run)}


def hold(layout: Layout, plan: Plan, shard_index: int = 0) -> int:
    """A new attempt, which holds the shard."""
    attempt = begin_attempt(layout, shard_index)
    prepare_shard(layout, plan.shards[shard_index], attempt)
    return attempt


def written_by(layout: Layout, attempt: int, shard_index: int = 0) -> set[Path]:
    """Everything that an attempt may leave when it is killed, but the rows that it saved."""
    staged = layout.staged_path(shard_index, attempt, "0123456789ab")
    rows = layout.wip_path(shard_index, attempt, "abcd")
    return {
        left(staged),
        left(staged.with_name(f".{staged.name}.0123456789ab.tmp")),
        left(layout.temp_receipt_path(shard_index, attempt, "0123456789ab")),
        left(rows.with_name(f".{rows.name}.0123456789ab.tmp")),
    }


def test_what_an_attempt_that_is_fenced_off_left_goes_and_its_rows_stay(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    first, second = hold(layout, plan), hold(layout, plan)
    append_rows(layout, plan.shards[0], first, [ok_outcome(1)])
    old, new = written_by(layout, first), written_by(layout, second)
    others = written_by(layout, 1, shard_index=1)  # whose attempt has no fence yet
    assert removed(layout, dry_run=True) == old
    assert removed(layout) == old
    assert removed(layout) == set()
    assert all(path.exists() for path in new | others)
    assert set(read_finished(layout, plan.shards[0])) == {(1, 0)}


def test_what_attempts_at_a_committed_shard_left_goes_with_its_rows(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    receipt = run_attempt(layout, plan, plan.shards[0])
    later = written_by(layout, receipt.attempt + 1)
    append_rows(layout, plan.shards[0], receipt.attempt, [ok_outcome(1)])
    append_rows(layout, plan.shards[1], 1, [ok_outcome(4)])
    saved = set(layout.wip_dir(0).glob("[!.]*"))
    mine = written_by(layout, receipt.attempt)
    assert saved and removed(layout) == mine | saved | {path for path in later if path.parent == layout.wip_dir(0)}
    assert not layout.wip_dir(0).exists()
    assert set(read_finished(layout, plan.shards[1])) == {(4, 0)}
    assert all(path.exists() for path in later if path.parent != layout.wip_dir(0))


def test_saved_rows_of_a_newer_generation_than_the_committed_one_stay(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    run_attempt(layout, plan, plan.shards[0])
    old = left(layout.wips_dir / "00000" / "1-abcd.parquet")
    left(layout.wips_dir / "00000.1" / "2-abcd.parquet")
    assert removed(layout) == {old}


def test_a_committed_part_that_is_not_in_place_yet_stays(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    receipt = run_attempt(layout, plan, plan.shards[0])
    (layout.output / receipt.part).rename(layout.staged_dir / receipt.staged)
    assert removed(layout) == set()
    hold(layout, plan)
    assert (layout.output / receipt.part).exists()


def test_half_written_records_go_once_nobody_can_be_writing_them(job: tuple[Layout, Plan]) -> None:
    layout, _ = job
    old = {
        left(path.with_name(f".{path.name}.0123456789ab.tmp"), age_seconds=UNOWNED_SECONDS + 60)
        for path in (layout.plan_path, layout.spec_path, layout.manifest_path)
    }
    left(layout.output / ".plan.json.ba9876543210.tmp", age_seconds=UNOWNED_SECONDS - 60)
    left(layout.output / ".mine", age_seconds=UNOWNED_SECONDS + 60)
    assert removed(layout) == old


def test_strange_files_and_empty_hive_directories_stay_and_files_are_said(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    run_attempt(layout, plan, plan.shards[0])
    (layout.output / "day=01").mkdir()
    strange = {
        left(layout.output / "notes.txt"),
        left(layout.output / "day=02" / "part-00000.parquet"),
        left(layout.staged_dir / "mine.parquet"),
        left(layout.receipts_dir / ".mine"),
    }
    left(layout.output / ".hidden")
    assert removed(layout) == set()
    assert set(unknown_files(layout)) == strange
    assert (layout.output / "day=01").is_dir()


def test_bytes_are_counted(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    first = hold(layout, plan)
    hold(layout, plan)
    left(layout.staged_path(0, first, "a"), 700)
    left(layout.temp_receipt_path(0, first, "a"), 5)
    assert sum(garbage.size_bytes for garbage in collect_garbage(layout)) == 705


class TestRaces:
    """Two attempts at one shard stop at any of their steps, and gc runs there, stopping at its own."""

    @pytest.fixture
    def plan(self, tmp_path: Path) -> Plan:
        return plan_of(spec_of(write_parquet(tmp_path / "in.parquet", prompts(3)), tmp_path / "out"))

    @pytest.mark.parametrize("gc_stop", ["temp_receipts_removed", "receipts_read"])
    def test_gc_in_the_middle_harms_no_commit(self, tmp_path: Path, plan: Plan, gc_stop: str) -> None:
        for number, (first_stop, second_stop) in enumerate(itertools.product(STEPS, STEPS)):
            layout = Layout(tmp_path / f"out{number}")
            save_plan(layout, plan)
            first, second = Attempt(layout, plan), Attempt(layout, plan)
            first.go_on(first_stop)
            second.go_on(second_stop)

            def go_on(name: str, first: Attempt = first) -> None:
                if name == gc_stop:
                    first.go_on("receipt_published")

            collect_garbage(layout, step=go_on)
            second.go_on()
            first.go_on()
            check_one_commit(layout, plan, first, second)

    def test_gc_after_a_commit_leaves_what_a_finished_job_is(self, tmp_path: Path, plan: Plan) -> None:
        layout = Layout(tmp_path / "out")
        save_plan(layout, plan)
        first, second = Attempt(layout, plan), Attempt(layout, plan)
        first.go_on("part_staged")
        second.go_on()
        collect_garbage(layout)
        assert leftovers(layout) == []
        first.go_on()
        assert first.last_step == END
        assert commit_job(layout, plan) is not None


def test_gc_beside_a_real_job_harms_nothing(job: tuple[Layout, Plan]) -> None:
    """Every step of every shard of a whole job has a gc after it."""
    layout, plan = job

    def step(name: str) -> None:
        collect_garbage(layout)

    for shard in plan.shards:
        append_rows(layout, shard, 1, [ok_outcome(shard.first_row)])
        run_attempt(layout, plan, shard, step)
    assert commit_job(layout, plan) is not None
    assert leftovers(layout) == []
