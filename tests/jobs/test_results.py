"""Results: committed rows in input order, with what the directories say, and only what receipts vouch for."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.cli import jobctl
from jobs.plan.planning import save_plan
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipts
from jobs.storage.results import read_results
from schemas.errors import InvalidJob, ShardFailed
from schemas.plan import Plan
from tests.storage import plan_of, prompts, run_attempt, spec_of, write_parquet


@pytest.fixture
def job(tmp_path: Path) -> tuple[Layout, Plan]:
    """A job of four shards of two rows in two Hive directories, nothing committed."""
    for number, day in enumerate(("day=01", "day=a%2Fb")):
        write_parquet(tmp_path / "in" / day / "x.parquet", prompts(4, first=4 * number))
    layout = Layout(tmp_path / "out")
    return layout, save_plan(layout, plan_of(spec_of(tmp_path / "in", layout.output, shard_rows=2)))


def values(layout: Layout, plan: Plan, column: str) -> list[object]:
    return [value for batch in read_results(layout, plan, [column]) for value in batch.column(column).to_pylist()]


def test_rows_are_in_input_order_whatever_order_shards_were_committed_in(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    for shard in reversed(plan.shards):
        run_attempt(layout, plan, shard)
    assert values(layout, plan, "row_index") == list(range(8))
    assert values(layout, plan, "prompt") == [f"prompt {row}" for row in range(8)]


def test_hive_keys_are_columns_again_as_the_directories_spell_them(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    for shard in plan.shards:
        run_attempt(layout, plan, shard)
    assert values(layout, plan, "day") == ["01"] * 4 + ["a/b"] * 4
    batches = list(read_results(layout, plan))
    assert batches[0].schema.names[-1] == "day"
    assert pa.Table.from_batches(batches).num_rows == 8


def test_rows_that_are_not_committed_are_left_out(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    assert list(read_results(layout, plan)) == []
    run_attempt(layout, plan, plan.shards[1])
    stray = layout.output / "day=01" / "part-00000.parquet"
    stray.write_bytes(layout.part_path(plan.shards[1]).read_bytes())
    assert values(layout, plan, "row_index") == [2, 3]


def test_a_committed_part_is_read_where_it_is_still_staged(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    run_attempt(layout, plan, plan.shards[0])
    os.rename(layout.part_path(plan.shards[0]), layout.staged_dir / read_receipts(layout)[0].staged)
    assert values(layout, plan, "row_index") == [0, 1]
    assert not layout.part_path(plan.shards[0]).exists()


def test_a_part_that_is_gone_or_not_as_committed_is_named(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    run_attempt(layout, plan, plan.shards[0])
    part = layout.part_path(plan.shards[0])
    whole = part.read_bytes()
    part.write_bytes(whole[:-1])
    with pytest.raises(ShardFailed, match=r"part-00000\.parquet is not as it was committed: its size differs"):
        list(read_results(layout, plan))
    place = whole.index(b"\x28\xb5\x2f\xfd") + 8  # inside the first page's compressed data
    part.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(ShardFailed, match=r"part-00000\.parquet cannot be read: .*CRC"):
        list(read_results(layout, plan))
    part.unlink()
    with pytest.raises(ShardFailed, match=r"part-00000\.parquet cannot be read: .*No such file"):
        list(read_results(layout, plan))


def test_dataset_readers_see_the_committed_rows_and_nothing_else(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    run_attempt(layout, plan, plan.shards[3])
    part = layout.part_path(plan.shards[3]).read_bytes()
    for path in (layout.staged_path(0, 1, "x"), layout.wip_path(0, 1, "x"), layout.part_path(plan.shards[0])):
        path.parent.mkdir(parents=True, exist_ok=True)
        (path if path.parent.name != "day=01" else path.with_name(f".{path.name}.tmp")).write_bytes(part)
    table = pq.read_table(layout.output)
    assert table["row_index"].to_pylist() == [6, 7]
    assert table["day"].to_pylist() == ["a/b"] * 2


def test_an_unknown_column_is_refused(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    run_attempt(layout, plan, plan.shards[0])
    with pytest.raises(InvalidJob, match="the results have no column 'x'"):
        list(read_results(layout, plan, ["x"]))


def test_the_command_tells_samples_apart_where_there_are_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_parquet(tmp_path / "in.parquet", prompts(2))
    for num_samples in (1, 2):
        layout = Layout(tmp_path / f"out{num_samples}")
        plan = save_plan(layout, plan_of(spec_of(source, layout.output, n=num_samples)))
        run_attempt(layout, plan, plan.shards[0])
        assert jobctl(["results", str(layout.output)]) == 0
        heading, *rows = capsys.readouterr().out.splitlines()
        assert ("SAMPLE-INDEX" in heading, len(rows)) == (num_samples > 1, 2 * num_samples)
        assert jobctl(["results", str(layout.output), "-o", "json"]) == 0
        keys = [(row["row_index"], row["sample_index"]) for row in json.loads(capsys.readouterr().out)]
        assert keys == [(row, sample) for row in range(2) for sample in range(num_samples)]
