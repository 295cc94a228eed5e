"""A part's result columns, row by row: every sample once and in order, and values that go together."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.columns import RESULT_FIELDS
from schemas.job import JobSpec
from schemas.plan import ShardPlan

Complaint = tuple[str, str]  # kind, detail
Row = Mapping[str, Any]

TEXTS = ("completion", "error_message", "completion_token_ids")  # looked at for being there and their length
SUMMED = (
    "num_target_steps",
    "num_spec_steps",
    "num_draft_tokens",
    "num_accepted_draft_tokens",
    "num_cut_target_tokens",
)
COUNTED = (*SUMMED, "acceptance_histogram")  # all null where an engine counts none
OF_OK = ("completion", "prompt_tokens", "completion_tokens", "seed")
OF_FAILED = ("error_kind", "error_message")
NOT_OF_FAILED = ("completion", "completion_tokens", "completion_token_ids", *COUNTED)


class RowChecks:
    """Walks the rows of one part. num_ok, num_failed, sums: over the rows so far, named as in a receipt."""

    def __init__(self, spec: JobSpec, shard: ShardPlan, has_params: bool) -> None:
        self.num_ok, self.num_failed = 0, 0
        self.sums: Counter[str] = Counter()
        self._spec, self._shard = spec, shard
        self._num_samples = None if has_params else spec.n
        self._last: Row | None = None

    def complaints(self, batch: pa.RecordBatch) -> Iterator[Complaint]:
        """batch: the next rows, with all of the part's columns."""
        for row in self._rows(batch):
            complaint = self._key_complaint(row)
            if complaint is not None:
                yield "keys", complaint
            self._last = row
            complaint = _status_complaint(row)
            if complaint is not None:
                yield "status", f"row {row['row_index']}: {complaint}"
                continue
            self._count(row)
            complaint = _statistics_complaint(row) if row["status"] == "ok" else None
            if complaint is not None:
                yield "statistics", f"row {row['row_index']}: {complaint}"

    def end_complaint(self) -> str | None:
        """Why the rows so far are not all of the shard's."""
        if self._due_row() != self._shard.end_row:
            return f"its rows end before row {self._due_row()}, not {self._shard.end_row}"
        return self._samples_complaint()

    def _rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        prefix = self._spec.output_prefix
        present = {field.name: batch.column(prefix + field.name) for field in _fields(batch, prefix)}
        columns = {
            name: pc.binary_length(values) if pa.types.is_string(values.type) else pc.list_value_length(values)
            for name, values in present.items()
            if name in TEXTS
        }
        columns |= {name: values for name, values in present.items() if name not in TEXTS}
        names, values = list(columns), [column.to_pylist() for column in columns.values()]
        for cells in zip(*values, strict=True):
            yield dict(zip(names, cells, strict=True))

    def _key_complaint(self, row: Row) -> str | None:
        key, last, due = (row["row_index"], row["sample_index"]), self._last, self._due_row()
        if last is not None and key == (last["row_index"], last["sample_index"] + 1):
            both_ok = last["status"] == row["status"] == "ok"
            return None if both_ok else f"row {key[0]} has failed, and has several samples"
        if due >= self._shard.end_row:
            return f"(row, sample) {key} after the last row, {self._shard.end_row - 1}"
        if key != (due, 0):
            return f"(row, sample) {key} where row {due} is due"
        return self._samples_complaint()

    def _due_row(self) -> int:
        return self._shard.first_row if self._last is None else int(self._last["row_index"]) + 1

    def _samples_complaint(self) -> str | None:
        """Whether the last row has all of its samples; a row's own params may ask for another number."""
        last = self._last
        if last is None or last["status"] != "ok" or self._num_samples in (None, last["sample_index"] + 1):
            return None
        return f"row {last['row_index']} has {last['sample_index'] + 1} samples, not {self._num_samples}"

    def _count(self, row: Row) -> None:
        if row["status"] == "error":
            self.num_failed += 1
            return
        self.num_ok += 1
        if row["num_target_steps"] is None:  # of an engine that counts none
            return
        self.sums["num_prompt_tokens"] += row["prompt_tokens"]
        self.sums["num_completion_tokens"] += row["completion_tokens"]
        for name in SUMMED:
            self.sums[name] += row[name]


def _fields(batch: pa.RecordBatch, prefix: str) -> list[pa.Field]:
    return [field for field in RESULT_FIELDS if prefix + field.name in batch.schema.names]


def _status_complaint(row: Row) -> str | None:
    status = row["status"]
    if status not in ("ok", "error"):
        return f"status {status!r}"
    needed, excluded = (OF_OK, OF_FAILED) if status == "ok" else (OF_FAILED, NOT_OF_FAILED)
    wrong = [f"without {name}" for name in needed if row[name] is None]
    wrong += [f"with {name}" for name in excluded if row.get(name) is not None]
    if row["finish_reason"] not in (("stop", "length") if status == "ok" else ("error",)):
        wrong.append(f"with finish_reason {row['finish_reason']!r}")
    if status == "ok" and len({row[name] is None for name in COUNTED}) > 1:
        wrong.append("with some of its counts")
    return f"{status} {wrong[0]}" if wrong else None


def _statistics_complaint(row: Row) -> str | None:
    """The identities of an ok row's counts."""
    num_tokens, num_ids = row["completion_tokens"], row.get("completion_token_ids")
    if num_ids is not None and num_ids != num_tokens:
        return f"{num_ids} completion_token_ids, but completion_tokens {num_tokens}"
    if row["num_target_steps"] is None:
        return None
    if sum(row["acceptance_histogram"]) != row["num_spec_steps"]:
        return f"acceptance_histogram sums to {sum(row['acceptance_histogram'])}, not to num_spec_steps"
    counted = 1 + row["num_target_steps"] + row["num_accepted_draft_tokens"] - row["num_cut_target_tokens"]
    if counted != num_tokens:
        return f"completion_tokens {num_tokens}, but its steps and drafts make {counted}"
    return None
