"""From an input row to a request: its prompt's tokens, and its own options over the job's.

Whatever is wrong with a row is a RowFailed of that row; what is wrong with all of them is an InvalidJob.
"""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from jobs.texts import one_line
from schemas.errors import InvalidJob, RowFailed
from schemas.generation import InputRow, Request
from schemas.job import JobSpec, RowParams
from schemas.seeds import derive_row_seed
from schemas.values import first_problem
from workers.engine.limits import check_prompt_length


def encode_row(row: InputRow, spec: JobSpec, tokenizer: Any, context_length: int) -> Request:
    """The row as the engine takes it. Raises RowFailed for a bad row, InvalidJob where no row could be encoded."""
    if row.error is not None:
        raise RowFailed(*row.error)
    params = row_params(row.params, spec)
    token_ids = prompt_token_ids(row, spec.system_prompt, tokenizer)
    check_prompt_length(len(token_ids), context_length)
    own = params.model_dump(exclude_none=True)
    options = {name: own.get(name, getattr(spec, name)) for name in ("max_new_tokens", "temperature", "top_k", "top_p")}
    seed = own.get("seed", derive_row_seed(spec.seed, row.row_index))
    return Request(row.row_index, tuple(token_ids), seed=seed, **options)


def prompt_token_ids(row: InputRow, system_prompt: str | None, tokenizer: Any) -> list[int]:
    """A prompt as it is, with the special tokens that the tokenizer adds; messages through its chat template."""
    if row.messages is not None:
        text = _chat_text(_checked_messages(row.messages, system_prompt), tokenizer)
        return list(tokenizer(text, add_special_tokens=False, verbose=False).input_ids)
    if not row.prompt:
        raise RowFailed("empty_prompt", "the prompt is empty; give it some text")
    return list(tokenizer(row.prompt, verbose=False).input_ids)


def row_params(params: Any, spec: JobSpec) -> RowParams:
    """The row's overrides; a mapping, JSON text or None. Raises RowFailed `bad_params` that names the key."""
    mapping = _mapping(params)
    try:
        overrides = RowParams.model_validate({key: value for key, value in mapping.items() if value is not None})
    except ValidationError as error:
        raise RowFailed("bad_params", f"params: {first_problem(error)}") from error
    if overrides.max_new_tokens is not None and overrides.max_new_tokens > spec.max_new_tokens:
        raise RowFailed(
            "bad_params",
            f"params: max_new_tokens {overrides.max_new_tokens} is above the job's {spec.max_new_tokens}; "
            "raise --max-new-tokens",
        )
    return overrides


def _mapping(params: Any) -> Mapping[str, Any]:
    if isinstance(params, str) and params.strip():
        try:
            params = json.loads(params)
        except (ValueError, RecursionError) as error:
            raise RowFailed("bad_params", f"params is not JSON: {error}") from error
    if params is None or params == "" or (isinstance(params, str) and not params.strip()):
        return {}
    if not isinstance(params, Mapping):
        raise RowFailed("bad_params", f"params must be a mapping or a JSON object, not {type(params).__name__}")
    return params


def _checked_messages(messages: list[dict[str, Any]], system_prompt: str | None) -> list[dict[str, Any]]:
    """The messages without the null fields that a Parquet struct has, after the job's system prompt."""
    if not messages:
        raise RowFailed("empty_prompt", "the list of messages is empty; give it one")
    checked = [_checked_message(index, message) for index, message in enumerate(messages)]
    if system_prompt is not None and all(message["role"] != "system" for message in checked):
        return [{"role": "system", "content": system_prompt}, *checked]
    return checked


def _checked_message(index: int, message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RowFailed("bad_messages", f"message {index} is {type(message).__name__}, not a struct")
    kept: dict[str, Any] = _without_nulls(message)
    if not isinstance(kept.get("role"), str):
        raise RowFailed("bad_messages", f"message {index} has no role")
    if "content" not in kept and "tool_calls" not in kept:
        raise RowFailed("bad_messages", f"message {index} has no content")
    return kept


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _chat_text(messages: list[dict[str, Any]], tokenizer: Any) -> str:
    if tokenizer.chat_template is None:
        raise InvalidJob(
            f"model {tokenizer.name_or_path} has no chat template for messages; use a chat model, or name a text "
            "column with --prompt-column"
        )
    try:
        text: str = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except Exception as error:  # a template may raise anything that Jinja or Python can
        raise RowFailed("bad_messages", f"the chat template refuses the messages: {one_line(error)}") from error
    return text
