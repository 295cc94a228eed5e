"""What a finished job's output must be, told without any of the code that wrote it."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.job import JobSpec
from tests.toy import expected_tokens


def check_output(spec: JobSpec) -> pa.Table:
    """Every sample of every input row once, in order, with its own tokens; nothing uncommitted left behind."""
    output = Path(spec.output)
    rows = pq.read_table(spec.input)
    parts = sorted(output.glob("part-*.parquet"))
    table = pa.concat_tables([pq.read_table(part) for part in parts])
    check_keys(spec, table, rows.num_rows)
    for name in rows.schema.names:
        carried = rows[name].to_pylist()
        assert table[name].to_pylist() == [carried[row_index] for row_index in table["row_index"].to_pylist()]
    for row in table.select(["row_index", "sample_index", "status", "completion"]).to_pylist():
        if row["status"] == "ok":
            tokens = expected_tokens(spec, row["row_index"], row["sample_index"])
            assert row["completion"] == " ".join(f"t{token}" for token in tokens)
    check_control_files(output, rows.num_rows, table.num_rows)
    return table


def check_keys(spec: JobSpec, table: pa.Table, num_rows: int) -> None:
    """n samples of each row, one of a row that failed."""
    keys = list(zip(table["row_index"].to_pylist(), table["sample_index"].to_pylist(), strict=True))
    failed = {key for key, status in zip(keys, table["status"].to_pylist(), strict=True) if status == "error"}
    expected = [(row, sample) for row in range(num_rows) for sample in range(1 if (row, 0) in failed else spec.n)]
    assert keys == expected


def check_control_files(output: Path, num_rows: int, num_samples: int) -> None:
    """The receipts of each shard's generations, the manifest that sums the newest, and no staged part."""
    manifest = json.loads((output / "_manifest.json").read_text())
    assert (output / "_SUCCESS").exists()
    assert manifest["num_rows"] == num_rows
    assert manifest["num_samples"] == manifest["num_ok"] + manifest["num_failed"] == num_samples
    receipts = [(*map(int, name.split(".")[:2]), name) for name in os.listdir(output / "_jobctl" / "receipts")]
    newest = {shard: generation for shard, generation, _ in sorted(receipts)}
    expected = [(shard, number) for shard in range(len(newest)) for number in range(newest[shard] + 1)]
    assert sorted(receipt[:2] for receipt in receipts) == expected
    names = {receipt[:2]: receipt[2] for receipt in receipts}
    read = [json.loads((output / "_jobctl" / "receipts" / names[one]).read_text()) for one in sorted(newest.items())]
    assert read == manifest["receipts"]
    assert list((output / "_jobctl" / "staged").iterdir()) == []
    assert {path.name for path in output.glob("*.parquet")} == {receipt["part"] for receipt in manifest["receipts"]}
