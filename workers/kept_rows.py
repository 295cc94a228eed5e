"""Kept rows: what a retry takes over from the part that it replaces, which are the rows that were ok, as they are."""

import hashlib
import logging
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.control.speculation import merge_speculation
from jobs.input.schema import decode_schema
from jobs.storage.durable import retryable_io
from jobs.storage.finish import sum_statistics
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipt
from jobs.texts import one_line
from schemas.columns import part_schema
from schemas.errors import LeaseLost
from schemas.plan import Plan, ShardPlan
from schemas.receipt import Receipt

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptRows:
    """receipt, table: of the part that is replaced. prefix: of its result columns."""

    receipt: Receipt
    table: pa.Table
    prefix: str

    @property
    def failed_rows(self) -> frozenset[int]:
        """row_index of those that are generated again."""
        rows = zip(_values(self.table, self.prefix, "row_index"), self._ok, strict=True)
        return frozenset(row_index for row_index, is_ok in rows if not is_ok)

    def merge(self, new: pa.Table) -> pa.Table:
        """The kept samples and the new ones, in order. new: all samples of the failed rows, as of a part."""
        # Not `take`: Arrow has none for some types.
        return pa.concat_tables(list(self._slices(new)))

    def added_to(self, receipt: Receipt) -> Receipt:
        """receipt: of the merged part, with what this attempt has done itself."""
        sums = sum_statistics([self.receipt.statistics, receipt.statistics])
        rounds = merge_speculation([self.receipt, receipt])
        return receipt.model_copy(update={"statistics": sums, "speculation": rounds})

    @property
    def _ok(self) -> list[bool]:
        return [status == "ok" for status in _values(self.table, self.prefix, "status")]

    def _slices(self, new: pa.Table) -> Iterator[pa.Table]:
        """Runs of ok rows from the old part, and in their place of failed ones from the new."""
        old = self.table.replace_schema_metadata(new.schema.metadata)
        rows, new_rows = _values(old, self.prefix, "row_index"), _values(new, self.prefix, "row_index")
        start = new_start = 0
        for is_ok, run in groupby(self._ok):
            stop = start + len(list(run))
            if is_ok:
                yield old.slice(start, stop - start)
            else:
                new_stop = bisect_right(new_rows, rows[stop - 1])
                yield new.slice(new_start, new_stop - new_start)
                new_start = new_stop
            start = stop


def read_kept(layout: Layout, plan: Plan, shard: ShardPlan, generation: int) -> KeptRows | None:
    """generation: the one to be made. None where nothing can be kept and every row is generated: for the first one, and
    where the part before is gone or damaged; every byte of it is checked.

    Raises LeaseLost where another attempt has replaced the part meanwhile; ShardRetryable on I/O errors.
    """
    receipt = read_receipt(layout.receipt_path(shard.shard_index, generation - 1)) if generation else None
    if receipt is None:
        return None
    path = layout.output / receipt.part
    try:
        with retryable_io(f"shard {shard.shard_index}: cannot read {path}"):
            table = _read(path, receipt, _schema(plan))
    except DamagedPart as damage:
        if layout.receipt_path(shard.shard_index, generation).exists():
            raise LeaseLost(f"shard {shard.shard_index}: another attempt has just committed it") from damage
        log.warning("%s %s; all of its rows are generated anew", path, damage)
        return None
    return KeptRows(receipt, table, plan.spec.output_prefix)


class DamagedPart(Exception):
    """What is wrong with a part, as the end of a sentence."""


def _read(path: Path, receipt: Receipt, schema: pa.Schema) -> pa.Table:
    """Of one open file, so that what was checked stays what is read when another part is put in place."""
    try:
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != receipt.sha256 or file.tell() != receipt.size_bytes:
                raise DamagedPart("is damaged: its bytes are not those of its receipt")
            table = pq.ParquetFile(file, page_checksum_verification=True).read()
    except FileNotFoundError as error:
        raise DamagedPart("is gone") from error
    except pa.ArrowException as error:
        raise DamagedPart(f"is damaged: {one_line(error)}") from error
    if not table.schema.equals(schema):
        raise DamagedPart("is damaged: its columns are not those of the job")
    return table


def _schema(plan: Plan) -> pa.Schema:
    return part_schema(decode_schema(plan.arrow_schema), plan.spec.save_token_ids, plan.spec.output_prefix)


def _values(table: pa.Table, prefix: str, name: str) -> list[Any]:
    return list(table.column(prefix + name).to_pylist())
