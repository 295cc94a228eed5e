"""jobctl verify and gc: what they print, and how they exit."""

import json
from pathlib import Path

import pytest

from jobs.cli import jobctl
from jobs.plan.planning import save_plan
from jobs.storage.finish import commit_job
from jobs.storage.layout import Layout
from schemas.plan import Plan
from tests.jobs.cli import files_under, only_line
from tests.storage import plan_of, prompts, run_attempt, spec_of, write_parquet


@pytest.fixture
def job(work: Path) -> tuple[Layout, Plan]:
    layout = Layout(work / "out")
    spec = spec_of(write_parquet(work / "in.parquet", prompts(5)), layout.output, shard_rows=2)
    plan = save_plan(layout, plan_of(spec))
    for shard in plan.shards:
        run_attempt(layout, plan, shard)
    commit_job(layout, plan)
    return layout, plan


def test_a_clean_job_is_counted(job: tuple[Layout, Plan], capsys: pytest.CaptureFixture[str]) -> None:
    before = files_under(job[0].output)
    assert jobctl(["verify", "out"]) == 0
    num_bytes = sum(path.stat().st_size for path in job[0].output.glob("*.parquet"))
    assert capsys.readouterr() == (f"verified: 3 parts, 5 rows, 5 samples, {num_bytes} bytes\n", "")
    assert files_under(job[0].output) == before


def test_each_problem_is_a_line(job: tuple[Layout, Plan], capsys: pytest.CaptureFixture[str]) -> None:
    layout, plan = job
    gone, short = layout.part_path(plan.shards[0]), layout.part_path(plan.shards[2])
    gone.unlink()
    short.write_bytes(b"PAR1")
    size_bytes = json.loads(layout.receipt_path(2).read_text())["size_bytes"]
    assert jobctl(["verify", "out"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"part_missing: {gone}: shard 0 is committed, but its part is gone",
        f"part_bytes: {short}: 4 bytes, not the {size_bytes} of its receipt",
        "2 problems",
    ]
    assert jobctl(["verify", "out", "-o", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["num_parts"], [one["kind"] for one in told["problems"]]) == (
        False,
        3,
        ["part_missing", "part_bytes"],
    )


def test_an_unfinished_job_says_so(job: tuple[Layout, Plan], capsys: pytest.CaptureFixture[str]) -> None:
    layout, plan = job
    layout.success_path.unlink()
    assert jobctl(["verify", "out"]) == 1
    assert capsys.readouterr().out.startswith("unfinished: every row is committed")
    layout.receipt_path(1).unlink()
    layout.part_path(plan.shards[1]).unlink()
    assert jobctl(["verify", "out"]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "unfinished: rows 2-3"
    assert shown[1].startswith("verified: 2 parts, 3 rows,")


def test_an_input_that_is_gone_need_not_be_looked_at(
    job: tuple[Layout, Plan], work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "in.parquet").unlink()
    assert jobctl(["verify", "out"]) == 1
    assert "verify with --without-input" in capsys.readouterr().out
    assert jobctl(["verify", "out", "--without-input"]) == 0


def test_leftovers_are_a_warning_and_gc_removes_them(
    job: tuple[Layout, Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    layout, _ = job
    left, strange = layout.staged_path(0, 1, "abc"), layout.output / "notes.txt"
    left.write_bytes(bytes(30))
    strange.write_text("mine")
    assert jobctl(["verify", "out"]) == 0
    warned = f"jobctl: {left} is left over; jobctl gc removes it\njobctl: {strange} is not this job's\n"
    assert capsys.readouterr().err == warned
    assert jobctl(["gc", "out", "--dry-run"]) == 0
    assert capsys.readouterr() == (
        f"{left}\nwould remove 1 file, 30 bytes\n",
        f"jobctl: {strange} is not this job's; it is kept\n",
    )
    assert jobctl(["gc", "out", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["removed"] == [{"path": str(left), "size_bytes": 30}]
    assert (told["num_bytes"], told["unknown"], told["dry_run"]) == (30, [str(strange)], False)
    assert not left.exists() and strange.exists()
    assert jobctl(["gc", "out"]) == 0
    assert capsys.readouterr().out == "removed 0 files, 0 bytes\n"


@pytest.mark.parametrize("verb", ["verify", "gc"])
def test_a_directory_without_a_job_is_not_found(work: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    (work / "empty").mkdir()
    assert jobctl([verb, "empty"]) == 3
    assert "holds no job" in only_line(capsys)


def test_damaged_records_are_a_line_not_a_traceback(
    job: tuple[Layout, Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    layout, _ = job
    layout.receipt_path(1).write_text("{")
    assert jobctl(["gc", "out"]) == 1
    assert "00001.0.json is damaged" in only_line(capsys)
    assert jobctl(["verify", "out"]) == 1
    assert capsys.readouterr().out.startswith("receipt_damaged: ")
    layout.plan_path.write_text("[]")
    assert jobctl(["verify", "out"]) == 1
    assert "plan.json is damaged" in only_line(capsys)
