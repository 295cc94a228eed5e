"""A part's carried columns against the input's."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from jobs.input.equality import same_values
from jobs.input.rows import InputRows, read_rows
from jobs.storage.verify_rows import Complaint
from schemas.errors import SpecbatchError
from schemas.plan import Plan

UNREADABLE = "unreadable_row"


class InputCursor:
    """The input's rows, read once in order, as batches of parts need them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._rows: Iterator[InputRows] = iter(())
        self._held: list[InputRows] = []

    def take(self, rows: range) -> list[InputRows]:
        """Batches that hold these rows, and perhaps some more. Raises as read_rows does; it can be asked again."""
        try:
            return self._take(rows)
        except SpecbatchError:
            self._held = []
            raise

    def _take(self, rows: range) -> list[InputRows]:
        self._held = [held for held in self._held if held.end_row > rows.start]
        if not self._held or self._held[0].first_row > rows.start:
            self._rows, self._held = read_rows(self._plan, range(rows.start, self._plan.num_rows)), []
        while not self._held or self._held[-1].end_row < rows.stop:
            self._held.append(next(self._rows))
        return list(self._held)


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of a part that follow each other in the input too. position: of the first one in its batch."""

    position: int
    rows: range
    is_unreadable: bool

    def within(self, first_row: int, end_row: int) -> "Run":
        start, stop = max(self.rows.start, first_row), min(self.rows.stop, end_row)
        return Run(self.position + start - self.rows.start, range(start, stop), self.is_unreadable)


def carried_complaints(batch: pa.RecordBatch, prefix: str, cursor: InputCursor) -> Iterator[Complaint]:
    """batch: some rows of a part, in order. A row that could not be read may have a null for any value."""
    runs = list(_runs(batch, prefix))
    if not runs:
        return
    for held in cursor.take(range(runs[0].rows.start, runs[-1].rows.stop)):
        for run in runs:
            part = run.within(held.first_row, held.end_row)
            if part.rows:
                yield from _run_complaints(batch, part, held)


def _runs(batch: pa.RecordBatch, prefix: str) -> Iterator[Run]:
    rows = batch.column(f"{prefix}row_index").to_pylist()
    unreadable = [kind == UNREADABLE for kind in batch.column(f"{prefix}error_kind").to_pylist()]
    start = 0
    for stop in range(1, len(rows) + 1):
        if stop == len(rows) or rows[stop] != rows[stop - 1] + 1 or unreadable[stop] != unreadable[start]:
            yield Run(start, range(rows[start], rows[stop - 1] + 1), unreadable[start])
            start = stop


def _run_complaints(batch: pa.RecordBatch, run: Run, held: InputRows) -> Iterator[Complaint]:
    if held.unreadable is not None and not run.is_unreadable:
        yield "input_unreadable", f"row {run.rows.start}: {held.unreadable}"
        return
    for name in held.values.schema.names:
        carried = batch.column(name).slice(run.position, len(run.rows))
        given = held.values.column(name).slice(run.rows.start - held.first_row, len(run.rows))
        if not same_values(carried, given):
            for offset, row_index in enumerate(run.rows):
                one = carried.slice(offset, 1)
                if not (same_values(one, given.slice(offset, 1)) or (run.is_unreadable and one.null_count)):
                    yield "carried", f"row {row_index}: column {name!r} differs from the input's"
                    break
