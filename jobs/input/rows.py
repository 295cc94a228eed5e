"""Rows of an input by their index in it, read again from its files as they were planned."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from jobs.input.row_groups import RowGroup, Rows
from jobs.input.schema import decode_schema
from jobs.input.sources import open_planned
from schemas.plan import InputFile, Plan


@dataclass(frozen=True, slots=True)
class InputRows:
    """Consecutive rows of the input, `first_row` the first. unreadable: why they are not whole, null in their place."""

    first_row: int
    values: pa.RecordBatch
    unreadable: str | None = None

    @property
    def end_row(self) -> int:
        return self.first_row + int(self.values.num_rows)


def read_rows(plan: Plan, rows: range) -> Iterator[InputRows]:
    """Every one of these rows in order, in batches in the plan's schema, never a whole file.

    A row of which a page is damaged comes all the same, with the values that can be read and a null for each other
    one. Those behind the page in its row group cannot be read either. The files are not changed by what was read here:
    a later read of a repaired file with the same footer gives the whole rows.

    Raises InvalidJob, naming the file, where one is not as it was planned; ShardRetryable on I/O errors; ShardFailed
    where a column that is damaged cannot be null.
    """
    schema = decode_schema(plan.arrow_schema)
    row = rows.start
    for file in plan.files:
        within = range(max(rows.start - file.first_row, 0), min(rows.stop - file.first_row, file.num_rows))
        for found in _read_file(file, within, schema) if within else ():
            yield InputRows(row, found.values, found.unreadable)
            row += found.values.num_rows


def _read_file(file: InputFile, rows: range, schema: pa.Schema) -> Iterator[Rows]:
    with open_planned(file) as (source, footer):
        for index, first_row, num_rows in _row_groups(footer.metadata):
            within = range(max(rows.start - first_row, 0), min(rows.stop - first_row, num_rows))
            if within:
                yield from RowGroup(source, footer.metadata, file.path, index, num_rows, schema).read(within)


def _row_groups(metadata: Any) -> Iterator[tuple[int, int, int]]:
    """(index, first row, number of rows) of each row group."""
    row = 0
    for index in range(metadata.num_row_groups):
        num_rows = metadata.row_group(index).num_rows
        yield index, row, num_rows
        row += num_rows
