"""Reading a shard: its rows only, from the row groups that hold them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from jobs.input.rows import InputRows, read_rows
from jobs.input.schema import decode_schema
from schemas.generation import InputRow
from schemas.plan import Plan, ShardPlan
from workers.cells import input_rows


@dataclass(frozen=True, slots=True)
class ShardRows:
    """table: the input's columns, unchanged, which are carried to the part. rows: one for each of its rows."""

    table: pa.Table
    rows: list[InputRow]

    def only(self, row_indices: Collection[int]) -> "ShardRows":
        """Some of the rows, in order."""
        kept = [position for position, row in enumerate(self.rows) if row.row_index in row_indices]
        # Not `take`: Arrow has none for some types.
        table = pa.concat_tables([self.table.slice(0, 0), *(self.table.slice(position, 1) for position in kept)])
        return ShardRows(table, [self.rows[position] for position in kept])


def read_shard(plan: Plan, shard: ShardPlan) -> ShardRows:
    """Reads a shard's rows; a row that cannot be generated carries its error.

    A row that the file holds damaged is one of them, `unreadable_row`, whichever of its columns is concerned: its part
    has nulls where there is nothing to carry, and an ok row has every value of its input.

    Raises InvalidJob, naming the file, where an input file is not as it was planned; ShardRetryable on I/O errors;
    ShardFailed, naming file, row group and column, where what is damaged cannot be null.
    """
    found = list(read_rows(plan, range(shard.first_row, shard.end_row)))
    table = pa.Table.from_batches([rows.values for rows in found], decode_schema(plan.arrow_schema))
    rows = list(input_rows(plan, shard.first_row, table))
    for row_index, reason in _unreadable(found):
        rows[row_index - shard.first_row] = InputRow(row_index, error=("unreadable_row", reason))
    return ShardRows(table, rows)


def _unreadable(found: Sequence[InputRows]) -> Iterator[tuple[int, str]]:
    for rows in found:
        if rows.unreadable is not None:
            yield from ((row_index, rows.unreadable) for row_index in range(rows.first_row, rows.end_row))
