"""Outcomes to columns: the result columns of a part, in the order of rows and their samples."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from schemas.columns import result_fields
from schemas.generation import RowOutcome
from schemas.job import JobSpec

Value = Callable[[RowOutcome], Any]


def result_arrays(spec: JobSpec, outcomes: Sequence[RowOutcome]) -> list[pa.Array]:
    """One array for each of the spec's result fields, in their order."""
    fields = result_fields(spec.save_token_ids)
    return [pa.array([VALUES[field.name](outcome) for outcome in outcomes], field.type) for field in fields]


def _when_ok(value: Value) -> Value:
    """Null for a row that failed."""
    return lambda outcome: value(outcome) if outcome.error is None else None


def _statistic(name: str) -> Value:
    """Null for a row that failed, or whose engine counts none."""
    return _when_ok(lambda outcome: getattr(outcome.statistics, name, None))


def _text(text: str | None) -> str | None:
    """Arrow takes no lone surrogates, which JSON texts and error messages may hold."""
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")


VALUES: Mapping[str, Value] = {
    "row_index": lambda outcome: outcome.row_index,
    "sample_index": lambda outcome: outcome.sample_index,
    "status": lambda outcome: "ok" if outcome.error is None else "error",
    "error_kind": lambda outcome: None if outcome.error is None else outcome.error[0],
    "error_message": lambda outcome: None if outcome.error is None else _text(outcome.error[1]),
    "completion": _when_ok(lambda outcome: _text(outcome.text)),
    "finish_reason": lambda outcome: outcome.finish_reason if outcome.error is None else "error",
    "prompt_tokens": lambda outcome: outcome.num_prompt_tokens,
    "completion_tokens": _when_ok(lambda outcome: len(outcome.token_ids)),
    "completion_token_ids": _when_ok(lambda outcome: outcome.token_ids),
    "seed": lambda outcome: outcome.seed,
    "num_target_steps": _statistic("num_target_steps"),
    "num_spec_steps": _statistic("num_spec_steps"),
    "num_draft_tokens": _statistic("num_draft_tokens"),
    "num_accepted_draft_tokens": _statistic("num_accepted_draft_tokens"),
    "num_cut_target_tokens": _statistic("num_cut_target_tokens"),
    "draft_acceptance_rate": _statistic("draft_acceptance_rate"),
    "mean_acceptance_length": _statistic("mean_acceptance_length"),
    "acceptance_histogram": _statistic("acceptance_histogram"),
}
