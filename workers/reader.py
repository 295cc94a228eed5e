"""Reading a shard: its rows only, from the row groups that hold them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.input.files import open_input
from jobs.input.footers import Footer, read_footer
from jobs.input.schema import decode_schema
from jobs.storage.durable import retryable_io
from jobs.texts import one_line
from schemas.errors import InvalidJob, ShardRetryable
from schemas.generation import InputRow
from schemas.plan import InputFile, Plan, ShardPlan
from workers.cells import input_rows

BATCH_ROWS = 1024  # decoded at once, however large a row group is
BUFFER_BYTES = 1 << 20  # read ahead in each column


@dataclass(frozen=True, slots=True)
class ShardRows:
    """table: the input's columns, unchanged, which are carried to the part. rows: one for each of its rows."""

    table: pa.Table
    rows: list[InputRow]


def read_shard(plan: Plan, shard: ShardPlan) -> ShardRows:
    """Reads a shard's rows; a row that cannot be generated carries its error.

    Raises InvalidJob, naming the file, where an input file is not as it was planned; ShardRetryable on I/O errors.
    """
    schema = decode_schema(plan.arrow_schema)
    batches = [batch for file in _files_of(plan, shard) for batch in _read_file(file, shard, schema)]
    table = pa.Table.from_batches(batches, schema)
    return ShardRows(table, list(input_rows(plan, shard.first_row, table)))


def _files_of(plan: Plan, shard: ShardPlan) -> Iterator[InputFile]:
    for file in plan.files:
        if file.first_row < shard.end_row and shard.first_row < file.first_row + file.num_rows:
            yield file


def _read_file(file: InputFile, shard: ShardPlan, schema: pa.Schema) -> list[pa.RecordBatch]:
    """The batches of the shard's rows in one file, in the plan's schema."""
    first = max(shard.first_row - file.first_row, 0)
    rows = range(first, min(shard.end_row - file.first_row, file.num_rows))
    try:
        with retryable_io(f"cannot read {file.path}"), _open(file.path) as source:
            footer = _planned_footer(source, file)
            return [conform(batch, schema) for batch in _batches(source, footer, rows)]
    except pa.ArrowException as error:
        raise ShardRetryable(f"cannot read {file.path}: {one_line(error)}") from error


def _open(path: str) -> Any:
    file_system, local_path = open_input(path)
    try:
        return file_system.open(local_path, "rb")
    except FileNotFoundError as error:
        raise InvalidJob(f"input file {path} is gone since the job was planned; restore it") from error


def _planned_footer(source: BinaryIO, file: InputFile) -> Footer:
    footer = read_footer(source, file.path)
    if (footer.size_bytes, footer.sha256) != (file.size_bytes, file.footer_sha256):
        raise InvalidJob(
            f"input file {file.path} has changed since the job was planned; restore it, or submit a new job"
        )
    return footer


def _batches(source: BinaryIO, footer: Footer, rows: range) -> Iterator[pa.RecordBatch]:
    """Rows [rows.start, rows.stop) of an open file; reading ends with the last of them."""
    parquet = pq.ParquetFile(
        source, metadata=footer.metadata, buffer_size=BUFFER_BYTES, page_checksum_verification=True
    )
    groups, first_row = _row_groups(footer.metadata, rows)
    for batch in parquet.iter_batches(batch_size=BATCH_ROWS, row_groups=groups):
        end_row = first_row + batch.num_rows
        if first_row < rows.stop and rows.start < end_row:
            start = max(rows.start - first_row, 0)
            yield batch.slice(start, min(rows.stop, end_row) - first_row - start)
        if end_row >= rows.stop:
            return
        first_row = end_row


def _row_groups(metadata: Any, rows: range) -> tuple[list[int], int]:
    """(row groups that hold any of the rows, the first row of the first of them)."""
    groups: list[int] = []
    first_row, row = 0, 0
    for group in range(metadata.num_row_groups):
        end_row = row + metadata.row_group(group).num_rows
        if row < rows.stop and rows.start < end_row:
            first_row = row if not groups else first_row
            groups.append(group)
        row = end_row
    return groups, first_row


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch's columns in the order and types of `schema`; those that have the type already are untouched."""
    columns = (batch.column(field.name) for field in schema)
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
