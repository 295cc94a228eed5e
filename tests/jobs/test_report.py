"""What people read of a job: progress, summary, rows."""

import io
import re
from pathlib import Path
from typing import Any

import pytest

from jobs import report
from jobs.cli.output import table
from jobs.cli.results import _plain
from jobs.control.state import ShardProgress, ShardStates
from jobs.control.status import JobStatus, RowRange
from jobs.follow import waiting_for
from jobs.plan.planning import save_plan
from jobs.report import PlainProgress, drafts_line, progress, progress_line, sample_rows, short_rows, summary
from jobs.storage.layout import Layout
from tests.storage import plan_of, prompts, run_attempt, spec_of, write_parquet


def status_of(**facts: Any) -> JobStatus:
    common = {
        "job_id": "job-1",
        "state": "running",
        "input": "/in.parquet",
        "output": "/out",
        "model": "m",
        "created_at": "2026-01-01T00:00:00+00:00",
        "num_rows": 64,
        "num_shards": 4,
    }
    return JobStatus.from_mapping({**common, **facts})


DONE = status_of(
    state="finished",
    num_rows_done=64,
    num_ok=62,
    num_failed=2,
    num_shards_done=4,
    num_prompt_tokens=1000,
    num_completion_tokens=4000,
    tokens_per_second=85.26,
    draft_acceptance_rate=0.4567,
    mean_acceptance_length=2.345,
)


def test_a_summary_says_rows_tokens_speed_acceptance_and_where_the_output_is() -> None:
    assert summary(DONE).splitlines() == [
        "job         job-1 finished",
        "rows        62 ok, 2 failed, of 64",
        "tokens      4000 generated from 1000 of prompts",
        "speed       85.3 tokens/s",
        "acceptance  0.46 of drafted tokens, 2.35 tokens a drafted round",
        "output      /out",
    ]


def test_a_summary_counts_rows_and_samples_where_rows_have_several() -> None:
    several = status_of(num_rows_done=63, num_ok=248, num_failed=1)
    assert "rows        63 of 64, 249 samples: 248 ok, 1 failed" in summary(several).splitlines()


@pytest.mark.parametrize(
    ("rounds", "line"),
    [
        ({"ngram": {"0": 41, "4": 39, "2": 20}}, "ngram: k=0 in 41 % of rounds, 2 in 20 %, 4 in 39 %"),
        (
            {"suffix": {"8": 30, "16": 0, "10": 10}, "none": {"0": 60}, "ngram": {}},
            "none: k=0 in 60 % of rounds; suffix: k=8 in 30 %, 10 in 10 %",
        ),
        ({}, ""),
        ({"ngram": {"4": 0}}, ""),
    ],
)
def test_the_drafts_line_has_each_sources_share_of_all_rounds(rounds: dict[str, dict[str, int]], line: str) -> None:
    assert drafts_line(rounds) == line
    lines = summary(status_of(speculation={"rounds_by_k": rounds})).splitlines()
    assert [text for text in lines if text.startswith("drafts")] == ([f"drafts      {line}"] if line else [])


def test_a_summary_of_an_incomplete_job_says_why_and_which_rows_are_missing() -> None:
    ranges = [RowRange(first_row=16 * i, end_row=16 * i + 8) for i in range(7)]
    status = status_of(state="incomplete", message="shard 0: out of memory", missing_rows=ranges)
    lines = summary(status).splitlines()
    assert "why         shard 0: out of memory" in lines
    assert "missing     rows 0-7, 16-23, 32-39, 48-55, 64-71 and 2 more ranges" in lines
    assert "acceptance  no drafted tokens" in lines


def test_a_progress_line_counts_running_rows_and_names_what_is_waited_for() -> None:
    running = status_of(num_rows_done=16, num_ok=16, num_rows_running=16, num_rows_generated=5, tokens_per_second=10.0)
    assert progress_line(running, "") == "21 of 64 rows, 10.0 tokens/s"
    assert progress_line(running, "loading m") == "21 of 64 rows (loading m)"
    assert progress_line(DONE, "") == "64 of 64 rows, 2 failed, 85.3 tokens/s, acceptance 0.46"


def test_plain_progress_prints_changes_of_what_is_waited_for_and_else_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(report.time, "monotonic", lambda: now)
    stream = io.StringIO()
    show = PlainProgress(stream)
    show(status_of(), "starting workers")
    show(status_of(), "starting workers")
    show(status_of(), "loading m")
    show(status_of(num_rows_done=1), "")
    show(status_of(num_rows_done=2), "")
    now += report.LINE_SECONDS
    show(status_of(num_rows_done=3), "")
    show(status_of(num_rows_done=4), "")
    show(status_of(state="finished", num_rows_done=64), "")
    assert [line.removeprefix("job-1: ") for line in stream.getvalue().splitlines()] == [
        "0 of 64 rows (starting workers)",
        "0 of 64 rows (loading m)",
        "1 of 64 rows",
        "3 of 64 rows",
        "64 of 64 rows",
    ]


def test_off_a_terminal_progress_is_plain_text() -> None:
    stream = io.StringIO()
    with progress(stream) as show:
        show(DONE, "")
    assert stream.getvalue() == f"job-1: {progress_line(DONE, '')}\n"


def test_on_a_terminal_progress_is_a_bar_that_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    with progress(stream) as show:
        show(status_of(num_rows_done=16), "")
    shown = stream.getvalue()
    assert "16 of 64 rows" in shown
    assert "\x1b" in shown and re.search(r"\x1b\[2K$", shown)


@pytest.mark.parametrize(
    ("facts", "running", "lack", "waiting"),
    [
        ({}, {}, "starting workers", "starting workers"),
        ({}, {}, "", "waiting for a worker to take a shard"),
        ({"num_shards_running": 1}, {0: "loading"}, "", "loading m"),
        ({"num_shards_running": 1}, {0: "generating"}, "", ""),
        ({"num_shards_running": 2}, {0: "generating", 1: "loading"}, "", ""),
        ({"num_shards_done": 1}, {}, "", ""),
        ({"num_shards_done": 1}, {}, "starting workers", "starting workers"),
        ({"num_shards_done": 4}, {}, "starting workers", "finishing"),
        ({"num_shards_done": 4, "state": "finished"}, {}, "", ""),
    ],
)
def test_what_a_job_waits_for(facts: dict[str, Any], running: dict[int, Any], lack: str, waiting: str) -> None:
    states = ShardStates(running={shard: ShardProgress(worker="w", phase=phase) for shard, phase in running.items()})
    assert waiting_for(status_of(**facts), states, lack) == waiting


def test_sample_rows_are_the_first_committed_ones_in_short(tmp_path: Path) -> None:
    spec = spec_of(write_parquet(tmp_path / "in.parquet", prompts(8)), tmp_path / "out", shard_rows=4)
    layout, plan = Layout(Path(spec.output)), plan_of(spec)
    for directory in (layout.attempts_dir, layout.receipts_dir, layout.staged_dir):
        directory.mkdir(parents=True)
    assert sample_rows(layout, plan) == []
    run_attempt(layout, plan, plan.shards[0])
    assert short_rows(sample_rows(layout, plan, 2), "") == [
        {"row_index": 0, "status": "ok", "tokens": 3, "acceptance": "0.25", "completion": "answer 0"},
        {"row_index": 1, "status": "ok", "tokens": 3, "acceptance": "0.25", "completion": "answer 1"},
    ]


def test_samples_are_told_apart_where_a_row_has_several(tmp_path: Path) -> None:
    spec = spec_of(write_parquet(tmp_path / "in.parquet", prompts(2)), tmp_path / "out", n=2)
    layout = Layout(Path(spec.output))
    plan = save_plan(layout, plan_of(spec))
    run_attempt(layout, plan, plan.shards[0])
    shown = short_rows(sample_rows(layout, plan, 3), "")
    assert [(row["row_index"], row["sample_index"], row["completion"]) for row in shown] == [
        (0, 0, "answer 0"),
        (0, 1, "answer 0.1"),
        (1, 0, "answer 1"),
    ]


def test_a_failed_row_shows_its_error_and_a_long_text_stays_one_line() -> None:
    row = {
        "p_row_index": 3,
        "p_sample_index": 0,
        "p_status": "error",
        "p_error_message": "the prompt\nis " + "long " * 50,
        "p_completion": None,
        "p_completion_tokens": None,
        "p_draft_acceptance_rate": None,
    }
    (short,) = short_rows([row], "p_")
    assert str(short["completion"]).startswith("the prompt is long") and len(str(short["completion"])) == 88
    assert str(short["completion"]).endswith("…")


def test_a_table_is_aligned_and_has_no_trailing_blanks() -> None:
    items = [{"job_id": "a", "state": None}, {"job_id": "longer", "state": "running"}]
    assert table(items, ["job_id", "state"]) == "JOB-ID  STATE\na       -\nlonger  running"


def test_json_of_rows_has_no_nan() -> None:
    assert _plain({"a": [1.5, float("nan")], "b": {"c": float("inf")}, "d": "x"}) == {
        "a": [1.5, None],
        "b": {"c": None},
        "d": "x",
    }
