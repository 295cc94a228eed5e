"""Writing: carried columns unchanged, one result row for each input row, and never a file that only looks whole."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.storage.durable import sha256_of
from schemas.columns import RESULT_FIELDS
from schemas.errors import ShardRetryable
from schemas.generation import RowOutcome, RowStatistics, SampleKey
from schemas.plan import Plan, ShardPlan
from tests.storage import by_key, failed_outcome, ok_outcome, outcomes_of, plan_of, prompts, spec_of, write_parquet
from workers import writer
from workers.reader import ShardRows, read_shard
from workers.writer import PartFacts, write_part


def planned(tmp_path: Path, columns: dict[str, Any], **options: Any) -> tuple[Plan, ShardPlan, ShardRows]:
    """The plan of an input, its last shard and that shard's rows."""
    plan = plan_of(spec_of(write_parquet(tmp_path / "in.parquet", columns), "/nowhere/out", **options))
    return plan, plan.shards[-1], read_shard(plan, plan.shards[-1])


def written(tmp_path: Path, columns: dict[str, Any], outcomes: list[RowOutcome], **options: Any) -> pa.Table:
    plan, shard, rows = planned(tmp_path, columns, **options)
    write_part(tmp_path / "part.parquet", plan, shard, rows, by_key(outcomes), {"torch": "2.6"})
    return pq.read_table(tmp_path / "part.parquet", page_checksum_verification=True)


def test_an_ok_row_has_its_text_tokens_and_statistics(tmp_path: Path) -> None:
    outcome = RowOutcome(
        row_index=0,
        text="four",
        finish_reason="length",
        num_prompt_tokens=7,
        token_ids=(1, 2, 3),
        seed=2**63 - 1,
        statistics=RowStatistics(3, 2, 8, 3, 4, [0, 1, 1]),
    )
    (row,) = written(tmp_path, prompts(1), [outcome], save_token_ids=True).to_pylist()
    assert row == {
        "prompt": "prompt 0",
        "row_index": 0,
        "sample_index": 0,
        "status": "ok",
        "error_kind": None,
        "error_message": None,
        "completion": "four",
        "finish_reason": "length",
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "completion_token_ids": [1, 2, 3],
        "seed": 2**63 - 1,
        "num_target_steps": 3,
        "num_spec_steps": 2,
        "num_draft_tokens": 8,
        "num_accepted_draft_tokens": 3,
        "num_cut_target_tokens": 4,
        "draft_acceptance_rate": 0.375,
        "mean_acceptance_length": 2.5,
        "acceptance_histogram": [0, 1, 1],
    }


def test_a_row_without_drafts_has_no_rates(tmp_path: Path) -> None:
    outcome = RowOutcome(row_index=0, text="", finish_reason="stop", statistics=RowStatistics(num_target_steps=2))
    (row,) = written(tmp_path, prompts(1), [outcome]).to_pylist()
    assert (row["draft_acceptance_rate"], row["mean_acceptance_length"], row["num_spec_steps"]) == (None, None, 0)
    assert (row["acceptance_histogram"], row["completion"]) == ([], "")
    assert "completion_token_ids" not in row


def test_a_failed_row_has_its_error_and_no_statistics(tmp_path: Path) -> None:
    (row,) = written(tmp_path, prompts(1), [failed_outcome(0, "prompt_too_long", "9 tokens")]).to_pylist()
    filled = {name: value for name, value in row.items() if value is not None}
    assert filled == {
        "prompt": "prompt 0",
        "row_index": 0,
        "sample_index": 0,
        "status": "error",
        "error_kind": "prompt_too_long",
        "error_message": "9 tokens",
        "finish_reason": "error",
    }


def test_texts_that_parquet_cannot_hold_do_not_end_a_shard(tmp_path: Path) -> None:
    outcomes = [failed_outcome(0, "bad_params", "unknown key '\ud800'"), ok_outcome(1)]
    table = written(tmp_path, prompts(2), outcomes)
    assert table["error_message"].to_pylist() == ["unknown key '?'", None]


def test_rows_are_in_input_order_whatever_order_they_finished_in(tmp_path: Path) -> None:
    outcomes = [ok_outcome(4), failed_outcome(3), ok_outcome(5)]
    table = written(tmp_path, prompts(6), outcomes, shard_rows=3)
    assert table["row_index"].to_pylist() == [3, 4, 5]
    assert table["prompt"].to_pylist() == ["prompt 3", "prompt 4", "prompt 5"]
    assert table["completion"].to_pylist() == [None, "answer 4", "answer 5"]


def test_samples_of_a_row_come_in_order_and_each_carries_the_row(tmp_path: Path) -> None:
    outcomes = [ok_outcome(4, sample_index=sample) for sample in (1, 0)]
    outcomes += [ok_outcome(5, sample_index=sample) for sample in (2, 0, 1)]
    table = written(tmp_path, prompts(6), [*outcomes, failed_outcome(3)], shard_rows=3)
    keys = zip(table["row_index"].to_pylist(), table["sample_index"].to_pylist(), strict=True)
    assert list(keys) == [(3, 0), (4, 0), (4, 1), (5, 0), (5, 1), (5, 2)]
    assert table["prompt"].to_pylist() == ["prompt 3", *["prompt 4"] * 2, *["prompt 5"] * 3]
    assert table["completion"].to_pylist() == [None, "answer 4", "answer 4.1", "answer 5", "answer 5.1", "answer 5.2"]


@pytest.mark.parametrize("num_samples", [1, 3])
def test_carried_columns_keep_values_types_and_metadata(tmp_path: Path, num_samples: int) -> None:
    carried = pa.table(
        {
            "prompt": pa.array(["a", None], pa.large_string()),
            "bad": pa.array([b"\xff", None], pa.binary()).view(pa.string()),
            "when": pa.array([1, None], pa.timestamp("ms", "Europe/Berlin")),
            "cents": pa.array([1, None], pa.int64()).cast(pa.decimal128(21, 2)),
            "kind": pa.array(["x", "y"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
            "view": pa.array(["v", None], pa.string_view()),
            "half": pa.array([1.5, None], pa.float16()),
            "nested": pa.array([[{"a": [1]}], None], pa.large_list(pa.struct([("a", pa.list_(pa.int8()))]))),
            "pairs": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
            "nothing": pa.nulls(2),
            "fixed": pa.array([[1, 2], None], pa.list_(pa.float32(), 2)),
        },
        metadata={"huggingface": "{}"},
    )
    pq.write_table(carried, tmp_path / "in.parquet")
    plan = plan_of(spec_of(tmp_path / "in.parquet", "/nowhere/out"))
    rows = read_shard(plan, plan.shards[0])
    outcomes = by_key([failed_outcome(1), *(ok_outcome(0, sample_index=sample) for sample in range(num_samples))])
    write_part(tmp_path / "part.parquet", plan, plan.shards[0], rows, outcomes, {})
    part = pq.read_table(tmp_path / "part.parquet")
    names = carried.schema.names
    assert part.schema.names[: len(names)] == names
    assert part.select(names).schema.equals(carried.schema)
    repeated = pa.concat_tables([carried.slice(0, 1)] * num_samples + [carried.slice(1)])
    assert part.select(names).drop(["bad"]).equals(repeated.drop(["bad"]))
    assert part["bad"].cast(pa.binary()).to_pylist() == [b"\xff"] * num_samples + [None]
    assert part.schema.metadata[b"huggingface"] == b"{}"


def test_the_file_tells_where_it_comes_from(tmp_path: Path) -> None:
    options = {"revision": "abc", "draft": "model", "draft_model": "small", "draft_revision": "def"}
    plan, _, _ = planned(tmp_path, prompts(1), **options)
    metadata = written(tmp_path, prompts(1), [ok_outcome(0)], **options).schema.metadata
    ours = {key.decode(): value.decode() for key, value in metadata.items() if key.startswith(b"specbatch.")}
    assert ours.pop("specbatch.version")
    assert ours == {
        "specbatch.job_id": plan.job_id,
        "specbatch.spec_sha256": plan.spec.digest(),
        "specbatch.model": "tiny",
        "specbatch.revision": "abc",
        "specbatch.draft": "model",
        "specbatch.draft_model": "small",
        "specbatch.draft_revision": "def",
        "specbatch.torch": "2.6",
    }


def test_a_prefix_goes_before_every_result_column(tmp_path: Path) -> None:
    table = written(tmp_path, {**prompts(1), "row_index": [9]}, [ok_outcome(0)], output_prefix="gen_")
    added = [field.name for field in RESULT_FIELDS if field.name != "completion_token_ids"]
    assert table.schema.names == ["prompt", "row_index", *(f"gen_{name}" for name in added)]
    assert (table["row_index"].to_pylist(), table["gen_row_index"].to_pylist()) == ([9], [0])


def test_an_empty_shard_makes_an_empty_part_with_every_column(tmp_path: Path) -> None:
    full = written(tmp_path, {**prompts(1), "n": pa.array([1], pa.int8())}, [ok_outcome(0)])
    columns = {"prompt": pa.array([], pa.string()), "n": pa.array([], pa.int8())}
    empty = written(tmp_path, columns, [])
    assert empty.num_rows == 0
    assert empty.schema.equals(full.schema)


def test_the_facts_are_those_of_the_file(tmp_path: Path) -> None:
    plan, shard, rows = planned(tmp_path, prompts(3))
    path = tmp_path / "part.parquet"
    outcomes = by_key([ok_outcome(0), failed_outcome(1), ok_outcome(2), ok_outcome(2, sample_index=1)])
    facts = write_part(path, plan, shard, rows, outcomes, {})
    assert facts == PartFacts(3, 4, 3, 1, path.stat().st_size, sha256_of(path))
    assert write_part(tmp_path / "again.parquet", plan, shard, rows, outcomes, {}) == facts


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({1: None}, r"1 rows without outcome \[1\], 0 outcomes out of place"),
        ({3: ok_outcome(3)}, r"0 rows without outcome \[\], 1 outcomes out of place \[\(3, 0\)\]"),
        ({1: ok_outcome(0)}, r"1 outcomes out of place \[\(1, 0\)\]"),
        ({(1, 2): ok_outcome(1, sample_index=2)}, r"1 outcomes out of place \[\(1, 2\)\]"),
        ({(1, 1): ok_outcome(1, sample_index=2)}, r"1 outcomes out of place \[\(1, 1\)\]"),
        ({(1, 1): replace(failed_outcome(1), sample_index=1)}, r"1 outcomes out of place \[\(1, 1\)\]"),
        ({1: failed_outcome(1), (1, 1): ok_outcome(1, sample_index=1)}, r"1 outcomes out of place \[\(1, 1\)\]"),
    ],
)
def test_a_part_with_missing_or_foreign_samples_is_refused(
    tmp_path: Path, changes: dict[int | SampleKey, RowOutcome | None], message: str
) -> None:
    plan, shard, rows = planned(tmp_path, prompts(3))
    keyed = {key if isinstance(key, tuple) else (key, 0): outcome for key, outcome in changes.items()}
    outcomes = {key: outcome for key, outcome in {**outcomes_of(shard), **keyed}.items() if outcome is not None}
    with pytest.raises(ShardRetryable, match=message):
        write_part(tmp_path / "part.parquet", plan, shard, rows, outcomes, {})
    assert os.listdir(tmp_path) == ["in.parquet"]


def test_a_part_that_reads_back_differently_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, shard, rows = planned(tmp_path, prompts(3))
    write_table = pq.write_table

    def lose_a_row(table: pa.Table, path: Path, **options: Any) -> None:
        write_table(table.slice(1).append_column("x", pa.nulls(table.num_rows - 1)), path, **options)

    monkeypatch.setattr(writer.pq, "write_table", lose_a_row)
    with pytest.raises(ShardRetryable, match="differs in rows, schema, row_index, sample_index"):
        write_part(tmp_path / "part.parquet", plan, shard, rows, outcomes_of(shard), {})
    assert os.listdir(tmp_path) == ["in.parquet"]


def test_an_error_while_writing_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, shard, rows = planned(tmp_path, prompts(3))

    def stop(path: Path, *rest: object) -> None:
        assert path.exists() and path.name.startswith(".")
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "check_part", stop)
    with pytest.raises(KeyboardInterrupt):
        write_part(tmp_path / "part.parquet", plan, shard, rows, outcomes_of(shard), {})
    assert os.listdir(tmp_path) == ["in.parquet"]


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from schemas.errors import ShardRetryable
from tests.storage import *
folder = Path(sys.argv[1])
plan = plan_of(spec_of(folder / "in.parquet", "/nowhere/out"))
rows = read_shard(plan, plan.shards[0])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    write_part(folder / "part.parquet", plan, plan.shards[0], rows, outcomes_of(plan.shards[0]), {})
except ShardRetryable as error:
    print(error)
"""


def test_a_full_disk_ends_the_attempt_and_leaves_no_file(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in.parquet", prompts(50))
    run = subprocess.run([sys.executable, "-c", FULL_DISK, tmp_path], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("shard 0: cannot write its part: ")
    assert "File too large" in run.stdout
    assert os.listdir(tmp_path) == ["in.parquet"]
