"""Cells to values: what one row is generated from, or why it cannot be."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as pat

from jobs.texts import one_line
from schemas.generation import InputRow
from schemas.plan import Plan

Error = tuple[str, str]
# Times that Python's own types cannot hold: nanoseconds, far years, unknown time zones.
NO_PYTHON_VALUE = (ValueError, OverflowError)


class Cell(NamedTuple):
    """A cell's value, or (error_kind, error_message) where it has none."""

    value: Any = None
    error: Error | None = None


def input_rows(plan: Plan, first_row: int, table: pa.Table) -> Iterator[InputRow]:
    """One InputRow for each row of `table`, whose first has the row_index `first_row`. No row raises."""
    column = table.column(plan.prompt_column)
    cells = _messages_cells(column) if plan.prompt_kind == "messages" else _prompt_cells(column)
    rows = zip(cells, _params_cells(table, plan.params_column), strict=True)
    for row_index, (cell, overrides) in enumerate(rows, start=first_row):
        error = cell.error or overrides.error
        if plan.prompt_kind == "messages":
            yield InputRow(row_index, messages=cell.value, params=overrides.value, error=error)
        else:
            yield InputRow(row_index, prompt=cell.value, params=overrides.value, error=error)


def _prompt_cells(column: pa.ChunkedArray) -> Iterator[Cell]:
    for cell in _text_cells(column):
        if cell is None:
            yield Cell(error=("null_prompt", "the prompt is null"))
        elif isinstance(cell, bytes):
            yield _bad_utf8("the prompt")
        elif not cell.strip():
            yield Cell(error=("empty_prompt", "the prompt is empty or white space"))
        else:
            yield Cell(cell)


def _text_cells(column: pa.ChunkedArray) -> Iterator[str | bytes | None]:
    """Texts; bytes where they are not UTF-8. Arrow does not check what it reads, and its to_pylist would raise."""
    for cell in _plain(column).cast(pa.large_binary()).to_pylist():
        try:
            yield None if cell is None else cell.decode("utf-8")
        except UnicodeDecodeError:
            yield cell


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Categories as their texts, extension types (Parquet's JSON) as what they store."""
    if pat.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column.cast(column.type.storage_type) if isinstance(column.type, pa.BaseExtensionType) else column


def _messages_cells(column: pa.ChunkedArray) -> Iterator[Cell]:
    for cell in column:
        try:
            messages = without_nulls(cell.as_py())
        except UnicodeDecodeError:
            yield _bad_utf8("a message")
            continue
        except NO_PYTHON_VALUE as error:
            yield Cell(error=("bad_messages", f"a message has a value that cannot be used: {one_line(error)}"))
            continue
        complaint = messages_error(messages)
        yield Cell(messages) if complaint is None else Cell(error=complaint)


def messages_error(messages: Any) -> Error | None:
    """Why messages are none that a chat template can take."""
    if messages is None:
        return "null_messages", "the messages are null"
    if not messages:
        return "empty_messages", "the list of messages is empty"
    for number, message in enumerate(messages):
        for key in ("role", "content"):
            if message is None or key not in message:
                return "bad_messages", f"message {number} has no {key}"
    return None


def without_nulls(value: Any) -> Any:
    """Structs without their null fields: Arrow gives a struct every key of the column, templates test for keys."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def _params_cells(table: pa.Table, name: str | None) -> Iterator[Cell]:
    """Overrides as read: a mapping, JSON text or None."""
    if name is None:
        yield from [Cell()] * table.num_rows
        return
    for cell in table.column(name):
        try:
            yield Cell(without_nulls(cell.as_py()))
        except UnicodeDecodeError:
            yield _bad_utf8("params")
        except NO_PYTHON_VALUE as error:
            yield Cell(error=("bad_params", f"params has a value that cannot be used: {one_line(error)}"))


def _bad_utf8(what: str) -> Cell:
    return Cell(error=("bad_utf8", f"{what} is not valid UTF-8"))
