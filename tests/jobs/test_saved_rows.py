"""Partial results: what is committed, and what running shards have saved, once each and in order."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.plan.planning import save_plan
from jobs.storage.checkpoint import append_rows
from jobs.storage.layout import Layout
from jobs.storage.results import read_results
from schemas.columns import part_schema
from schemas.errors import InvalidJob
from schemas.plan import Plan
from tests.storage import failed_outcome, ok_outcome, plan_of, prompts, run_attempt, spec_of, write_parquet


@pytest.fixture
def job(tmp_path: Path) -> tuple[Layout, Plan]:
    """Two shards of three rows in a Hive directory, two samples a row: the second one is committed."""
    columns: dict[str, Any] = {**prompts(6), "list": [[row] for row in range(6)]}
    write_parquet(tmp_path / "in" / "day=01" / "x.parquet", columns)
    layout = Layout(tmp_path / "out")
    plan = save_plan(layout, plan_of(spec_of(tmp_path / "in", layout.output, shard_rows=3, n=2)))
    run_attempt(layout, plan, plan.shards[1])
    return layout, plan


def table_of(layout: Layout, plan: Plan) -> pa.Table:
    return pa.Table.from_batches(read_results(layout, plan, saved_too=True))


def test_saved_rows_come_in_order_and_once_whichever_attempts_saved_them(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    append_rows(layout, plan.shards[0], 1, [ok_outcome(2), ok_outcome(0, sample_index=1)])
    append_rows(layout, plan.shards[0], 2, [ok_outcome(0, sample_index=1), failed_outcome(1)])
    table = table_of(layout, plan)
    committed = [(row, sample) for row in (3, 4, 5) for sample in (0, 1)]
    keys = list(zip(*(table[name].to_pylist() for name in ("row_index", "sample_index")), strict=True))
    assert keys == [(0, 1), (1, 0), (2, 0), *committed]
    assert table["prompt"].to_pylist() == [f"prompt {row}" for row, _ in keys]
    assert table["list"].to_pylist() == [[row] for row, _ in keys]
    assert table["status"].to_pylist() == ["ok", "error", "ok", *["ok"] * 6]
    assert table["completion"].to_pylist()[:4] == ["answer 0.1", None, "answer 2", "answer 3"]


def test_saved_rows_have_the_columns_of_committed_ones(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    append_rows(layout, plan.shards[0], 1, [ok_outcome(2)])
    saved, committed = read_results(layout, plan, saved_too=True)
    assert saved.schema == committed.schema
    assert saved.schema.names[-1] == "day"
    assert part_schema(pa.schema([]), save_token_ids=False).names == saved.schema.names[2:-1]


def test_without_saved_rows_partial_results_are_the_committed_ones(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    assert table_of(layout, plan) == pa.Table.from_batches(read_results(layout, plan))


def test_saved_rows_of_an_input_that_has_changed_are_not_put_beside_it(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    append_rows(layout, plan.shards[0], 1, [ok_outcome(2)])
    write_parquet(Path(plan.files[0].path), prompts(7))
    with pytest.raises(InvalidJob, match="has changed since the job was planned"):
        table_of(layout, plan)
