"""Damaged Parquet files: refused in one line, or read with every row in its place and none lost that can be read."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given

from jobs.input.equality import same_values
from jobs.plan.planning import save_plan
from jobs.storage.finish import commit_job
from jobs.storage.layout import Layout
from jobs.storage.verify import Verification
from schemas.errors import InvalidJob, SpecbatchError
from schemas.generation import RowOutcome, SampleKey
from tests.fuzz.damage import NUM_ROWS, Damaged, damaged_files, table
from tests.fuzz.profile import fuzzed
from tests.storage import by_key, failed_outcome, ok_outcome, plan_of, run_attempt, spec_of
from workers.reader import ShardRows, read_shard


@contextmanager
def reading(damaged: Damaged) -> Iterator[Path]:
    """The file alone in a directory."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "in.parquet"
        path.write_bytes(damaged.data)
        yield path


def column_of(shards: list[ShardRows], name: str, rows: range) -> pa.Array:
    chunks = [chunk for shard in shards for chunk in shard.table.column(name).chunks]
    return pa.chunked_array(chunks).slice(rows.start, len(rows)).combine_chunks()


def outcomes_of(shard_rows: ShardRows) -> dict[SampleKey, RowOutcome]:
    rows = shard_rows.rows
    return by_key(ok_outcome(r.row_index) if r.error is None else failed_outcome(r.row_index, *r.error) for r in rows)


def assert_one_line(error: SpecbatchError) -> None:
    assert "\n" not in str(error) and 0 < len(str(error)) < 2000


@fuzzed(70)
@given(damaged_files("data"))
def test_what_is_not_damaged_is_read_whatever_else_is(damaged: Damaged) -> None:
    with reading(damaged) as path, patch("jobs.input.row_groups.BATCH_ROWS", 7):
        plan = plan_of(spec_of(path, path.parent / "out", shard_rows=20))
        shards = [read_shard(plan, shard) for shard in plan.shards]
    rows = [row for shard in shards for row in shard.rows]
    assert [row.row_index for row in rows] == list(range(NUM_ROWS))
    whole, num_intact = table(damaged.kind), Counter[int]()
    for lines, name in damaged.intact_columns():
        assert same_values(
            column_of(shards, name, lines), whole.column(name).combine_chunks()[lines.start : lines.stop]
        )
        num_intact.update(lines)
    lost = {row.row_index for row in rows if row.error is not None}
    assert not lost & {row for row in range(NUM_ROWS) if num_intact[row] == whole.num_columns}


@fuzzed(20)
@given(damaged_files("data"))
def test_a_damaged_file_makes_a_finished_job_that_verifies(damaged: Damaged) -> None:
    with reading(damaged) as path:
        layout = Layout(path.parent / "out")
        plan = save_plan(layout, plan_of(spec_of(path, layout.output, shard_rows=20)))
        for shard in plan.shards:
            run_attempt(layout, plan, shard, outcomes=outcomes_of(read_shard(plan, shard)))
        assert commit_job(layout, plan) is not None
        assert list(Verification(layout, plan).problems()) == []


@fuzzed(150)
@given(damaged_files("footer") | damaged_files("all"))
def test_any_file_is_refused_in_one_line_or_read_whole(damaged: Damaged) -> None:
    """A footer that is damaged may well say where else the data are; what it says is checked, and not believed."""
    with reading(damaged) as path:
        try:
            plan = plan_of(spec_of(path, path.parent / "out", shard_rows=20))
        except InvalidJob as error:
            assert_one_line(error)
            return
        for shard in plan.shards:
            try:
                found = read_shard(plan, shard)
            except SpecbatchError as error:
                assert_one_line(error)
            else:
                assert len(found.rows) == found.table.num_rows == shard.num_rows
                found.table.validate(full=False)
