"""Verify: what should never have been committed: a part that is as its receipt says, and wrong all the same."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.storage.durable import sha256_of
from jobs.storage.layout import Layout
from jobs.storage.verify import Verification
from tests.jobs.verified import details, make_job


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        (lambda t: t.slice(0, 2), "keys", "its rows end before row 2, not 3"),
        (lambda t: pa.concat_tables([t, t.slice(2)]), "keys", "(row, sample) (2, 0) after the last row, 2"),
        (lambda t: pa.concat_tables([t.slice(1, 1), t.slice(0, 1), t.slice(2)]), "keys", "(1, 0) where row 0"),
        (lambda t: replaced(t, "row_index", [0, 1, 99]), "keys", "(row, sample) (99, 0) where row 2 is due"),
        (
            lambda t: pa.concat_tables([t, t.slice(2, 1)]).set_column(
                4, t.schema.field("row_index"), pa.array([0, 1, 2, 3])
            ),
            "keys",
            "(3, 0) after the last row, 2",
        ),
        (lambda t: replaced(t, "sample_index", [0, 1, 0]), "keys", "(row, sample) (1, 1) where row 1 is due"),
        (lambda t: replaced(t, "row_index", [0, 0, 1]), "keys", "(row, sample) (0, 0) where row 1 is due"),
        (lambda t: replaced(t, "status", ["ok", "odd", "ok"]), "status", "row 1: status 'odd'"),
        (lambda t: replaced(t, "completion", ["a", None, "c"]), "status", "row 1: ok without completion"),
        (lambda t: replaced(t, "error_kind", [None, "k", None]), "status", "row 1: ok with error_kind"),
        (lambda t: replaced(t, "status", ["ok", "error", "ok"]), "status", "row 1: error without error_kind"),
        (lambda t: replaced(t, "finish_reason", ["stop"] * 2 + [None]), "status", "row 2: ok with finish_reason"),
        (lambda t: replaced(t, "num_spec_steps", [1, None, 1]), "status", "row 1: ok with some of its counts"),
        (lambda t: replaced(t, "num_spec_steps", [1, 2, 1]), "statistics", "acceptance_histogram sums to 1"),
        (lambda t: replaced(t, "num_target_steps", [1, 1, 5]), "statistics", "row 2: completion_tokens 3, but"),
        (lambda t: t.drop(["seed"]), "part_schema", "columns"),
        (lambda t: t.replace_schema_metadata({}), "part_metadata", "its job_id is None"),
    ],
)
def test_what_no_worker_should_write_is_found(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], kind: str, says: str
) -> None:
    layout, plan = make_job(tmp_path)
    part = layout.part_path(plan.shards[0])
    pq.write_table(change(pq.read_table(part)), part)
    admit(layout, part)
    layout.success_path.unlink()
    problems = list(Verification(layout, plan).problems())
    assert says in next(problem.detail for problem in problems if problem.kind == kind)
    assert "carried" not in {problem.kind for problem in problems}


@pytest.mark.parametrize(
    ("rows", "changes", "says"),
    [
        (range(5), {}, "keys: row 2 has 1 samples, not 2"),
        ([0, 2, 3, 4, 5], {}, "keys: row 0 has 1 samples, not 2"),
        (range(6), {"status": ["ok", "error"] + ["ok"] * 4}, "keys: row 0 has failed, and has several samples"),
        (range(6), {"completion_tokens": [3, 3, 3, 4, 3, 3]}, "statistics: row 1: 3 completion_token_ids, but"),
    ],
)
def test_a_wrong_number_of_samples_or_tokens_is_found(
    tmp_path: Path, rows: Sequence[int], changes: dict[str, list[Any]], says: str
) -> None:
    layout, plan = make_job(tmp_path, n=2, save_token_ids=True)
    part = layout.part_path(plan.shards[0])
    table = pq.read_table(part).take(list(rows))
    for name, values in changes.items():
        table = replaced(table, name, values)
    pq.write_table(table, part)
    admit(layout, part)
    layout.success_path.unlink()
    found = [f"{problem.kind}: {problem.detail}" for problem in Verification(layout, plan).problems()]
    assert [line for line in found if line.startswith(says)]


def test_counts_that_the_rows_do_not_make_are_found(tmp_path: Path) -> None:
    layout, plan = make_job(tmp_path)
    values = json.loads(layout.receipt_path(0).read_text())
    values["statistics"]["num_draft_tokens"] += 1
    layout.receipt_path(0).write_text(json.dumps(values))
    layout.success_path.unlink()
    assert details(layout, plan) == ["part-00000.parquet: its receipt says num_draft_tokens 13, its rows make 12"]


def replaced(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    index = table.schema.get_field_index(name)
    return table.set_column(index, table.schema.field(index), pa.array(values, table.schema.field(index).type))


def admit(layout: Layout, part: Path) -> None:
    """Makes the first receipt say that the part is as it is now."""
    values = json.loads(layout.receipt_path(0).read_text())
    values |= {"size_bytes": part.stat().st_size, "sha256": sha256_of(part)}
    layout.receipt_path(0).write_text(json.dumps(values))
