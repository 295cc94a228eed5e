"""A job's results in input order: the rows that receipts vouch for, also while the job still runs."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.input.files import hive_pairs
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipt, read_receipts
from jobs.storage.saved_rows import saved_rows
from jobs.texts import one_line
from schemas.errors import InvalidJob, ShardFailed
from schemas.plan import Plan, ShardPlan
from schemas.receipt import Receipt

BATCH_ROWS = 1024
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def read_results(
    layout: Layout, plan: Plan, columns: Sequence[str] | None = None, saved_too: bool = False
) -> Iterator[pa.RecordBatch]:
    """Batches of committed rows, shard after shard; rows that are not committed are left out.

    Hive keys that are no columns of the parts are added as text, as the directories have them. columns: only
    these. saved_too: also the finished rows that were saved of shards that are not committed.
    Raises ShardFailed where a committed part is gone or damaged, InvalidJob for an unknown column, and where an input
    file that saved rows are of is not as it was.
    """
    receipts = read_receipts(layout)
    for shard in plan.shards:
        if shard.shard_index in receipts:
            yield from _read_part(layout, shard, receipts[shard.shard_index], columns)
        elif saved_too and (saved := saved_rows(layout, plan, shard)).num_rows:
            yield from _with_hive(saved.to_batches(), saved.column_names, _hive_columns(shard), columns)


def _read_part(
    layout: Layout, shard: ShardPlan, receipt: Receipt, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    path = layout.output / receipt.part
    try:
        with _open_part(layout, receipt) as file:
            if os.fstat(file.fileno()).st_size != receipt.size_bytes:
                newer = read_receipt(layout.receipt_path(receipt.shard_index, receipt.generation + 1))
                if newer is not None:  # a retry has just put it in place
                    yield from _read_part(layout, shard, newer, columns)
                    return
                raise ShardFailed(f"{path} is not as it was committed: its size differs from the receipt's")
            yield from _batches(file, _hive_columns(shard), columns)
    except (OSError, pa.ArrowException) as error:
        raise ShardFailed(f"{path} cannot be read: {one_line(error)}") from error


def _open_part(layout: Layout, receipt: Receipt) -> BinaryIO:
    """The committed part where it is: staged still, or in place."""
    try:
        return open(layout.staged_dir / receipt.staged, "rb")
    except FileNotFoundError:
        return open(layout.output / receipt.part, "rb")


def _hive_columns(shard: ShardPlan) -> dict[str, str | None]:
    pairs = hive_pairs(shard.partition)
    return {key: None if value == HIVE_NULL else unquote(value) for key, value in pairs}


def _batches(file: BinaryIO, hive: dict[str, str | None], columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    part = pq.ParquetFile(file, page_checksum_verification=True)
    names = part.schema_arrow.names
    kept = None if columns is None else [name for name in columns if name in names]
    yield from _with_hive(part.iter_batches(batch_size=BATCH_ROWS, columns=kept), names, hive, columns)


def _with_hive(
    batches: Iterable[pa.RecordBatch], names: Sequence[str], hive: dict[str, str | None], columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    """names: the batches' columns, or more."""
    wanted = [*names, *(key for key in hive if key not in names)] if columns is None else columns
    for name in wanted:
        if name not in names and name not in hive:
            raise InvalidJob(f"the results have no column {name!r}")
    for batch in batches:
        arrays = [
            batch.column(name) if name in names else pa.array([hive[name]] * batch.num_rows, pa.string())
            for name in wanted
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(wanted))
