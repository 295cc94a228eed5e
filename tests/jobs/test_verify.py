"""Verify: a finished job is clean; whatever is changed in it, moved, taken away or added is found."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.plan.planning import save_plan
from jobs.storage.durable import sha256_of
from jobs.storage.finish import commit_job
from jobs.storage.gc import visible_files
from jobs.storage.layout import Layout
from jobs.storage.problems import Problem
from jobs.storage.verify import Verification
from jobs.storage.verify_input import InputCursor
from jobs.storage.verify_part import part_problems
from schemas.errors import ShardFailed
from schemas.generation import RowOutcome, SampleKey
from schemas.plan import Plan, ShardPlan
from tests.jobs.verified import NUM_ROWS, carried, details, kinds, make_job
from tests.storage import (
    by_key,
    failed_outcome,
    ok_outcome,
    plan_of,
    run_attempt,
    spec_of,
    write_parquet,
)
from workers.reader import read_shard


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Layout, Plan]:
    return make_job(tmp_path_factory.mktemp("made"), n=2)


@pytest.fixture
def job(made: tuple[Layout, Plan], tmp_path: Path) -> tuple[Layout, Plan]:
    """A copy of the finished job's output, beside the same input."""
    shutil.copytree(made[0].output, tmp_path / "out")
    return Layout(tmp_path / "out"), made[1]


@pytest.mark.parametrize("n", [1, 2])
def test_a_finished_job_is_clean(tmp_path: Path, n: int) -> None:
    layout, plan = make_job(tmp_path, n=n, save_token_ids=True, output_prefix="my_")
    found = Verification(layout, plan)
    assert list(found.problems()) == []
    assert sum(receipt.num_samples for receipt in found.receipts.values()) == NUM_ROWS * n


def test_many_samples_and_rows_are_compared_over_the_edges_of_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, plan = make_job(tmp_path, n=3)
    monkeypatch.setattr("jobs.storage.verify_part.BATCH_ROWS", 2)
    monkeypatch.setattr("jobs.input.row_groups.BATCH_ROWS", 3)
    assert kinds(layout, plan) == []


def test_a_hive_job_without_rows_is_clean(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in" / "day=01" / "x.parquet", {"prompt": pa.array([], pa.string())})
    layout = Layout(tmp_path / "out")
    plan = save_plan(layout, plan_of(spec_of(tmp_path / "in", layout.output)))
    run_attempt(layout, plan, plan.shards[0])
    commit_job(layout, plan)
    assert kinds(layout, plan) == []


def test_a_job_that_still_runs_raises_no_false_alarm(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "in.parquet", carried(NUM_ROWS))
    layout = Layout(tmp_path / "out")
    plan = save_plan(layout, plan_of(spec_of(source, layout.output, shard_rows=4)))
    found: dict[str, list[str]] = {}

    def step(name: str) -> None:
        found.setdefault(name, []).extend(kinds(layout, plan))

    for shard in plan.shards:
        run_attempt(layout, plan, shard, step)
    commit_job(layout, plan, step)
    until_it_is_moved = ("receipt_published", "receipt_durable", "temp_receipt_removed")
    assert {name: seen for name, seen in found.items() if seen} == {
        name: ["part_staged"] * 2 for name in until_it_is_moved
    }


def test_a_part_committed_while_files_are_listed_is_no_foreign_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_parquet(tmp_path / "in.parquet", carried(NUM_ROWS))
    layout = Layout(tmp_path / "out")
    plan = save_plan(layout, plan_of(spec_of(source, layout.output, shard_rows=4)))

    def after_a_commit(listed: Layout) -> list[Path]:
        run_attempt(layout, plan, plan.shards[0])
        return list(visible_files(listed))

    monkeypatch.setattr("jobs.storage.verify.visible_files", after_a_commit)
    assert kinds(layout, plan) == []


def test_a_part_that_a_retry_replaces_meanwhile_is_read_as_the_retry_left_it(
    job: tuple[Layout, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, plan = job
    part = layout.part_path(plan.shards[1])

    def after_a_retry(*arguments: Any) -> Iterator[Problem]:
        if arguments[0] == part and not layout.receipt_path(1, 1).exists():
            pq.write_table(pq.read_table(part), part, compression="gzip", write_page_checksum=True)
            values = {**json.loads(layout.receipt_path(1).read_text()), "generation": 1, "attempt": 2}
            values |= {"size_bytes": part.stat().st_size, "sha256": sha256_of(part)}
            layout.receipt_path(1, 1).write_text(json.dumps(values))
        yield from part_problems(*arguments)

    monkeypatch.setattr("jobs.storage.verify.part_problems", after_a_retry)
    assert kinds(layout, plan) == []
    part.unlink()
    assert kinds(layout, plan) == ["manifest_differs", "part_missing"]


class TestBytes:
    def test_a_flipped_bit_anywhere_in_a_part_is_found(self, job: tuple[Layout, Plan]) -> None:
        layout, plan = job
        part = layout.part_path(plan.shards[1])
        data = part.read_bytes()
        for place in range(0, len(data), 61):
            part.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
            assert kinds(layout, plan, with_input=False) == ["part_bytes"], place

    def test_a_missing_part_is_found(self, job: tuple[Layout, Plan]) -> None:
        layout, plan = job
        layout.part_path(plan.shards[0]).unlink()
        assert kinds(layout, plan) == ["part_missing"]

    @pytest.mark.parametrize("num_bytes", [0, 1, 500])
    def test_a_short_part_is_found(self, job: tuple[Layout, Plan], num_bytes: int) -> None:
        layout, plan = job
        part = layout.part_path(plan.shards[0])
        part.write_bytes(part.read_bytes()[:num_bytes])
        assert kinds(layout, plan) == ["part_bytes"]

    def test_swapped_parts_are_found(self, job: tuple[Layout, Plan]) -> None:
        layout, plan = job
        a, b = layout.part_path(plan.shards[0]), layout.part_path(plan.shards[1])
        kept = a.read_bytes()
        a.write_bytes(b.read_bytes())
        b.write_bytes(kept)
        assert kinds(layout, plan) == ["part_bytes", "part_bytes"]

    def test_a_part_that_is_a_directory_is_found(self, job: tuple[Layout, Plan]) -> None:
        layout, plan = job
        part = layout.part_path(plan.shards[0])
        part.unlink()
        part.mkdir()
        assert kinds(layout, plan) == ["part_bytes"]

    def test_a_part_that_is_still_staged_is_said_and_verified(self, job: tuple[Layout, Plan]) -> None:
        layout, plan = job
        receipt = json.loads(layout.receipt_path(1).read_text())
        part, staged = layout.part_path(plan.shards[1]), layout.staged_dir / receipt["staged"]
        part.rename(staged)
        assert kinds(layout, plan) == ["part_staged"]
        staged.write_bytes(staged.read_bytes()[:-1] + b"?")
        assert kinds(layout, plan) == ["part_staged", "part_bytes"]


class TestForeignFiles:
    def test_a_doubled_and_a_foreign_part_are_told_apart(self, job: tuple[Layout, Plan]) -> None:
        layout, plan = job
        shutil.copy(layout.part_path(plan.shards[0]), layout.output / "part-00000-copy.parquet")
        shutil.copy(layout.part_path(plan.shards[0]), layout.output / "_hidden.parquet")
        write_parquet(layout.output / "day=01" / "part-00099.parquet", {"prompt": ["x"]})
        (layout.output / "notes.txt").write_text("")
        assert details(layout, plan) == [
            "part-00099.parquet: no receipt names it, and dataset readers take it for a part",
            "part-00000-copy.parquet: it holds the same rows as part-00000.parquet",
        ]

    def test_a_part_whose_receipt_is_gone_is_foreign_and_success_came_early(self, job: tuple[Layout, Plan]) -> None:
        layout, plan = job
        layout.receipt_path(2).unlink()
        assert kinds(layout, plan) == ["success_early", "part_foreign"]


class TestRecords:
    def test_every_change_of_a_receipt_or_of_the_manifest_is_found(self, job: tuple[Layout, Plan]) -> None:
        layout, plan = job
        for path in (layout.receipt_path(1), layout.manifest_path):
            text = path.read_bytes()
            for key, value in json.loads(text).items():
                changed = {**json.loads(text), key: other_than(value)}
                path.write_text(json.dumps(changed))
                assert kinds(layout, plan), (path.name, key)
            for place in range(0, len(text) - 1, 61):
                path.write_bytes(text[:place])
                assert kinds(layout, plan), (path.name, place)
            path.write_bytes(text)
        assert kinds(layout, plan) == []

    def test_receipts_under_each_others_names_are_found(self, job: tuple[Layout, Plan]) -> None:
        layout, plan = job
        shutil.copy(layout.receipt_path(1), layout.receipt_path(2))
        assert "receipt_foreign" in kinds(layout, plan)
        shutil.copy(layout.receipt_path(1), layout.receipt_path(40))
        assert kinds(layout, plan).count("receipt_foreign") == 2

    def test_a_receipt_of_another_job_is_found(self, job: tuple[Layout, Plan]) -> None:
        layout, plan = job
        values = json.loads(layout.receipt_path(0).read_text())
        layout.receipt_path(0).write_text(json.dumps({**values, "job_id": "job-other"}))
        (problem, *_) = Verification(layout, plan).problems()
        assert problem.detail == f"its job_id is 'job-other', not {plan.job_id!r}"

    def test_a_missing_manifest_and_another_spec_are_found(self, job: tuple[Layout, Plan]) -> None:
        layout, plan = job
        layout.manifest_path.unlink()
        spec = plan.spec.model_copy(update={"seed": 5})
        layout.spec_path.write_text(spec.to_json())
        assert kinds(layout, plan) == ["spec_differs", "manifest_differs"]

    def test_an_unfinished_job_is_clean_as_far_as_it_is(self, job: tuple[Layout, Plan]) -> None:
        layout, plan = job
        layout.success_path.unlink()
        layout.manifest_path.unlink()
        layout.receipt_path(1).unlink()
        layout.part_path(plan.shards[1]).unlink()
        found = Verification(layout, plan)
        assert list(found.problems()) == []
        assert sorted(found.receipts) == [0, 2]


def other_than(value: Any) -> Any:
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, int):
        return value + 1
    if isinstance(value, list):
        return value[:-1]
    if isinstance(value, dict):
        key = min(value)
        return {**value, key: other_than(value[key])}
    return {"a": 1}


class TestInput:
    def test_an_input_that_changed_or_went_is_named_and_need_not_be_looked_at(self, tmp_path: Path) -> None:
        layout, plan = make_job(tmp_path)
        source = Path(plan.files[0].path)
        source.write_bytes(source.read_bytes()[:-1] + b"?")
        assert kinds(layout, plan) == ["input_changed"]
        source.unlink()
        assert kinds(layout, plan) == ["input_gone"]
        assert kinds(layout, plan, with_input=False) == []

    @pytest.mark.parametrize("column", ["prompt", "score", "kind", "tags"])
    def test_a_carried_value_that_differs_is_found_in_its_row(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
    ) -> None:
        monkeypatch.setattr("jobs.storage.verify_part.BATCH_ROWS", 2)
        layout, plan = make_job(tmp_path)
        columns = carried(NUM_ROWS)
        values = pa.array(columns[column]).to_pylist()
        kind = pa.array(columns[column]).type
        values[4] = values[5] = {"prompt": "other", "score": 0.5, "kind": "k9", "tags": [("a", 9.0)]}[column]
        write_parquet(Path(plan.files[0].path), {**columns, column: pa.array(values, kind)}, row_group_size=4)
        plan = with_input_as_it_is(plan)
        assert details(layout, plan) == [f"part-00001.parquet: row 4: column {column!r} differs from the input's"]

    def test_damage_in_the_input_since_is_not_taken_for_a_difference(self, tmp_path: Path) -> None:
        layout, plan = make_job(tmp_path)
        damage(Path(plan.files[0].path), "prompt")
        assert kinds(layout, plan)[0] == "input_unreadable"
        assert set(kinds(layout, plan)) == {"input_unreadable"}

    def test_damage_that_cannot_be_passed_over_hinders_no_other_part(self, tmp_path: Path) -> None:
        fields = [("prompt", pa.string()), pa.field("score", pa.int64(), nullable=False)]
        source = tmp_path / "in.parquet"
        rows = {"prompt": [str(row) for row in range(12)], "score": list(range(12))}
        pq.write_table(pa.table(rows, schema=pa.schema(fields)), source, row_group_size=4)
        layout = Layout(tmp_path / "out")
        plan = save_plan(layout, plan_of(spec_of(source, layout.output, shard_rows=2)))
        for shard in plan.shards:
            run_attempt(layout, plan, shard)
        damage(source, "score", row_group=1)
        found = [(problem.kind, problem.path.name) for problem in Verification(layout, plan).problems()]
        assert found == [("input_unreadable", "part-00002.parquet"), ("input_unreadable", "part-00003.parquet")]
        cursor = InputCursor(plan)
        for _ in range(2):
            with pytest.raises(ShardFailed):
                cursor.take(range(2, 6))

    def test_rows_that_could_not_be_read_are_clean_and_so_once_they_can(self, tmp_path: Path) -> None:
        source = write_parquet(tmp_path / "in.parquet", carried(NUM_ROWS), row_group_size=4)
        whole = source.read_bytes()
        layout = Layout(tmp_path / "out")
        plan = save_plan(layout, plan_of(spec_of(source, layout.output, shard_rows=3)))
        damage(source, "score")
        for shard in plan.shards:
            run_attempt(layout, plan, shard, outcomes=errors_kept(plan, shard))
        assert kinds(layout, plan) == []
        source.write_bytes(whole)
        assert kinds(layout, plan) == []


def with_input_as_it_is(plan: Plan) -> Plan:
    """The same plan, of the file that is there now."""
    (file,) = plan_of(plan.spec).files
    return plan.model_copy(update={"files": (file,)})


def damage(path: Path, column: str, row_group: int = 0) -> None:
    """Zeros a column's first page, its header too; the footer stays."""
    metadata = pq.ParquetFile(path).metadata.row_group(row_group)
    chunk = next(c for c in map(metadata.column, range(metadata.num_columns)) if c.path_in_schema == column)
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + 20] = bytes(20)
    path.write_bytes(bytes(data))


def errors_kept(plan: Plan, shard: ShardPlan) -> dict[SampleKey, RowOutcome]:
    rows = read_shard(plan, shard).rows
    assert any(row.error for row in rows) == (shard.shard_index < 2)
    return by_key(ok_outcome(r.row_index) if r.error is None else failed_outcome(r.row_index, *r.error) for r in rows)
