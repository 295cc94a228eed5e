"""What a finished job's output must be, told without any of the code that wrote it."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.job import JobSpec
from tests.toy import expected_tokens


def check_output(spec: JobSpec) -> pa.Table:
    """Every input row once, in order, with the tokens it must have; nothing uncommitted left behind."""
    output = Path(spec.output)
    rows = pq.read_table(spec.input)
    parts = sorted(output.glob("part-*.parquet"))
    table = pa.concat_tables([pq.read_table(part) for part in parts])
    num_rows = rows.num_rows
    assert table.num_rows == len(set(table["row_index"].to_pylist())) == num_rows
    assert table["row_index"].to_pylist() == list(range(num_rows))
    for name in rows.schema.names:
        assert table[name].to_pylist() == rows[name].to_pylist()
    for row_index, (status, text) in enumerate(zip(table["status"], table["completion"], strict=True)):
        if status.as_py() == "ok":
            tokens = expected_tokens(spec, row_index)
            assert text.as_py() == " ".join(f"t{token}" for token in tokens)
    check_control_files(output, num_rows)
    return table


def check_control_files(output: Path, num_rows: int) -> None:
    """One receipt a shard, the manifest that sums them, and no staged part."""
    manifest = json.loads((output / "_manifest.json").read_text())
    assert (output / "_SUCCESS").exists()
    assert manifest["num_rows"] == manifest["num_ok"] + manifest["num_failed"] == num_rows
    receipts = sorted((output / "_jobctl" / "receipts").iterdir())
    assert [path.name for path in receipts] == [f"{shard:05d}.0.json" for shard in range(len(receipts))]
    assert [json.loads(path.read_text()) for path in receipts] == manifest["receipts"]
    assert list((output / "_jobctl" / "staged").iterdir()) == []
    assert {path.name for path in output.glob("*.parquet")} == {receipt["part"] for receipt in manifest["receipts"]}
