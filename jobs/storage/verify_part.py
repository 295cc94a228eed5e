"""One committed part against its receipt, its plan and its input."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.input.schema import decode_schema
from jobs.storage.durable import sha256_of
from jobs.storage.problems import Problem
from jobs.storage.verify_input import InputCursor, carried_complaints
from jobs.storage.verify_rows import SUMMED, Complaint, RowChecks
from jobs.texts import one_line
from schemas.columns import part_schema
from schemas.errors import SpecbatchError
from schemas.plan import Plan, ShardPlan
from schemas.receipt import Receipt

BATCH_ROWS = 1024


def part_problems(
    path: Path, plan: Plan, shard: ShardPlan, receipt: Receipt, cursor: InputCursor | None
) -> Iterator[Problem]:
    """The first problem of each kind. path: where the part is. cursor: None where the input is not looked at."""
    seen: set[str] = set()
    try:
        for kind, detail in _complaints(path, plan, shard, receipt, cursor):
            if kind not in seen:
                yield Problem(kind, path, detail)
            seen.add(kind)
    except FileNotFoundError:
        yield Problem("part_missing", path, f"shard {shard.shard_index} is committed, but its part is gone")
    except (OSError, pa.ArrowException) as error:
        yield Problem("part_unreadable", path, one_line(error))


def _complaints(
    path: Path, plan: Plan, shard: ShardPlan, receipt: Receipt, cursor: InputCursor | None
) -> Iterator[Complaint]:
    size_bytes = path.stat().st_size
    if size_bytes != receipt.size_bytes:
        yield "part_bytes", f"{size_bytes} bytes, not the {receipt.size_bytes} of its receipt"
    elif sha256_of(path) != receipt.sha256:
        yield "part_bytes", "its sha256 is not that of its receipt"
    else:
        with pq.ParquetFile(path, page_checksum_verification=True) as part:
            yield from _content_complaints(part, plan, shard, receipt, cursor)


def _content_complaints(
    part: Any, plan: Plan, shard: ShardPlan, receipt: Receipt, cursor: InputCursor | None
) -> Iterator[Complaint]:
    """Of a part that is as it was committed: what should not have been committed so, or another input or receipt."""
    schema = part_schema(decode_schema(plan.arrow_schema), plan.spec.save_token_ids, plan.spec.output_prefix)
    if not part.schema_arrow.equals(schema):
        yield "part_schema", "its columns or their types are not those of the plan"
        return
    origin = {"job_id": plan.job_id, "spec_sha256": plan.spec.digest()}
    for name, value in origin.items():
        found = (part.schema_arrow.metadata or {}).get(f"specbatch.{name}".encode())
        if found != value.encode():
            yield "part_metadata", f"its {name} is {found!r}, not {value}"
    checks = RowChecks(plan.spec, shard, plan.params_column is not None)
    in_order = True
    for batch in part.iter_batches(batch_size=BATCH_ROWS):
        for complaint in checks.complaints(batch):
            in_order = in_order and complaint[0] != "keys"
            yield complaint
        if cursor is not None and in_order:
            yield from _input_complaints(batch, plan, cursor)
    if end := checks.end_complaint():
        yield "keys", end
    yield from _receipt_complaints(checks, part.metadata.num_rows, receipt)


def _input_complaints(batch: pa.RecordBatch, plan: Plan, cursor: InputCursor) -> Iterator[Complaint]:
    try:
        yield from carried_complaints(batch, plan.spec.output_prefix, cursor)
    except SpecbatchError as error:
        yield "input_unreadable", str(error)


def _receipt_complaints(checks: RowChecks, num_samples: int, receipt: Receipt) -> Iterator[Complaint]:
    counted = {"num_samples": num_samples, "num_ok": checks.num_ok, "num_failed": checks.num_failed}
    counted |= {name: checks.sums[name] for name in ("num_prompt_tokens", "num_completion_tokens", *SUMMED)}
    for name, value in counted.items():
        there = getattr(receipt if name in Receipt.model_fields else receipt.statistics, name)
        if there != value:
            yield "receipt_counts", f"its receipt says {name} {there}, its rows make {value}"
