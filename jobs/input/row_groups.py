"""A row group's rows, damaged or not: what cannot be read costs its own rows, not the whole file.

Parquet keeps a column of a row group in pages, which are decoded one after the other. So where one is damaged, that
column's values are lost from there to the end of the row group; all other columns and row groups are intact.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat

from jobs.input.sources import WatchedFile
from jobs.texts import one_line
from schemas.errors import ShardFailed, ShardRetryable

BATCH_ROWS = 1024  # decoded at once, however large a row group is
BUFFER_BYTES = 1 << 20  # read ahead in each column
NARROWING_STEPS = 16_384  # a second or so; in longer prefixes a few good rows before the damage are given up
DAMAGE = (pa.ArrowException, OSError)


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows in the plan's schema. unreadable: why they are not whole; what cannot be read is then null."""

    values: pa.RecordBatch
    unreadable: str | None = None

    def part(self, start: int, stop: int) -> "Rows":
        return Rows(self.values.slice(start, stop - start), self.unreadable)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some values of one column. unreadable: as above."""

    values: pa.Array
    unreadable: str | None = None

    def after(self, num_values: int) -> "Piece":
        return Piece(self.values[num_values:], self.unreadable)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of an open file. metadata: the file's. schema: the plan's."""

    source: WatchedFile
    metadata: Any
    path: str
    index: int
    num_rows: int
    schema: pa.Schema

    def read(self, rows: range) -> Iterator[Rows]:
        """These rows of the group, in batches.

        Raises ShardRetryable on I/O errors, ShardFailed where a value cannot be read in a column that has no nulls.
        """
        row = 0
        for batch in self._intact():
            start, end = max(rows.start - row, 0), min(rows.stop - row, batch.num_rows)
            row += batch.num_rows
            if start < end:
                yield Rows(batch.slice(start, end - start))
            if row >= rows.stop:
                return
        yield from self._salvage(range(max(row, rows.start), rows.stop))

    def _intact(self) -> Iterator[pa.RecordBatch]:
        """Whole rows, up to the first damage."""
        try:
            for batch in self._batches(BATCH_ROWS):
                yield conform(batch, self.schema)
        except DAMAGE as error:
            self._check(error)

    def _salvage(self, rows: range) -> Iterator[Rows]:
        row = 0
        for merged in _merge([self._column(field, rows) for field in self.schema], self.schema):
            start, end = max(rows.start - row, 0), min(rows.stop - row, merged.values.num_rows)
            row += merged.values.num_rows
            if start < end:
                yield merged.part(start, end)
            if row >= rows.stop:
                return

    def _column(self, field: pa.Field, rows: range) -> Iterator[Piece]:
        """A value for each row of the group; those of `rows` are read as far as they can be."""
        row, reason = 0, "it ends early"
        try:
            for values in self._values(field, BATCH_ROWS):
                row += len(values)
                yield Piece(values)
        except DAMAGE as error:
            self._check(error)
            reason = one_line(error)
        if row + BATCH_ROWS > rows.start:
            for values in self._readable_from(field, row):
                row += len(values)
                yield Piece(values)
        yield from self._lost(field, self.num_rows - row, reason)

    def _readable_from(self, field: pa.Field, row: int) -> Iterator[pa.Array]:
        """What precedes the damage within the batch that could not be read as a whole."""
        end = 0
        try:
            for values in self._values(field, max(1, row // NARROWING_STEPS)):
                end += len(values)
                if end > row:
                    yield values[max(len(values) - (end - row), 0) :]
        except DAMAGE as error:
            self._check(error)

    def _values(self, field: pa.Field, batch_rows: int) -> Iterator[pa.Array]:
        row = 0
        for batch in self._batches(batch_rows, [field.name]):
            (values,) = conform(batch, pa.schema([field])).columns
            yield values[: self.num_rows - row]
            row += len(values)
            if row >= self.num_rows:
                return

    def _batches(self, num_rows: int, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        # A reader for each: the size of batches is the reader's own, and columns are read side by side.
        parquet = pq.ParquetFile(
            self.source, metadata=self.metadata, buffer_size=BUFFER_BYTES, page_checksum_verification=True
        )
        return iter(parquet.iter_batches(num_rows, [self.index], columns))

    def _lost(self, field: pa.Field, num_values: int, reason: str) -> Iterator[Piece]:
        message = f"column {field.name!r} of row group {self.index} of {self.path} cannot be read: {reason}"
        if num_values and not _may_be_null(field):
            raise ShardFailed(
                f"{message}; the column has no nulls to stand for it; repair the file, or drop the column"
            )
        for start in range(0, num_values, BATCH_ROWS):
            yield Piece(pa.nulls(min(BATCH_ROWS, num_values - start), field.type), message)

    def _check(self, error: Exception) -> None:
        """Raises ShardRetryable where the data may be whole after all."""
        self.source.check()
        if isinstance(error, MemoryError):
            raise ShardRetryable(f"cannot read {self.path}: {one_line(error)}") from error


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch's columns in the order and types of `schema`; those that have the type already are untouched."""
    columns = (batch.column(field.name) for field in schema)
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _merge(columns: Sequence[Iterator[Piece]], schema: pa.Schema) -> Iterator[Rows]:
    """Columns to rows, cut wherever a piece of a column ends."""
    pieces = [next(column, None) for column in columns]
    while all(piece is not None for piece in pieces):
        heads = [piece for piece in pieces if piece is not None]
        num_rows = min(len(head.values) for head in heads)
        values = pa.RecordBatch.from_arrays([head.values[:num_rows] for head in heads], schema=schema)
        yield Rows(values, next((head.unreadable for head in heads if head.unreadable), None))
        pieces = [
            head.after(num_rows) if len(head.values) > num_rows else next(column, None)
            for head, column in zip(heads, columns, strict=True)
        ]


def _may_be_null(field: pa.Field) -> bool:
    """Whether the column can be written with a null in place of a value: a struct's members are then null too."""
    members = field.type if pat.is_struct(field.type) else ()
    return bool(field.nullable) and all(_may_be_null(member) for member in members)
