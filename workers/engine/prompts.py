"""From an input row to requests, one for each of its samples: its prompt's tokens, and its options.

Whatever is wrong with a row is a RowFailed of that row; what is wrong with all of them is an InvalidJob.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.texts import one_line
from schemas.errors import InvalidJob, RowFailed
from schemas.generation import InputRow, Request
from schemas.job import JobSpec, RowParams, SamplingSpec
from schemas.seeds import derive_row_seed
from workers.engine.limits import check_prompt_length
from workers.engine.row_params import row_params, row_sampling
from workers.engine.token_options import bad_word_token_ids, check_job_tokens, check_row_tokens

PLAIN_OPTIONS = tuple(SamplingSpec.model_fields.keys() - {"n", "logit_bias", "bad_words"})


def encode_row(row: InputRow, spec: JobSpec, tokenizer: Any, context_length: int, vocab_size: int) -> list[Request]:
    """The row's samples as the engine takes them, each with a seed of its own.

    A seed that the row names is its first sample's, and the others' follow from it. vocab_size: of the model's logits.
    Raises RowFailed for a bad row, InvalidJob where no row could be encoded.
    """
    if row.error is not None:
        raise RowFailed(*row.error)
    check_job_tokens(spec, tokenizer, vocab_size)
    params = row_params(row.params, spec)
    check_row_tokens(params, tokenizer, vocab_size)
    sampling = row_sampling(params, spec)
    token_ids = prompt_token_ids(row, spec.system_prompt, tokenizer)
    check_prompt_length(len(token_ids), context_length)
    first = _first_sample(row.row_index, token_ids, sampling, tokenizer)
    seeds = (sample_seed(spec, params, row.row_index, sample_index) for sample_index in range(sampling.n))
    return [replace(first, sample_index=sample_index, seed=seed) for sample_index, seed in enumerate(seeds)]


def sample_seed(spec: JobSpec, params: RowParams, row_index: int, sample_index: int) -> int:
    if params.seed is None:
        return derive_row_seed(spec.seed, row_index, sample_index)
    return derive_row_seed(params.seed, row_index, sample_index) if sample_index else params.seed


def _first_sample(row_index: int, token_ids: Sequence[int], sampling: SamplingSpec, tokenizer: Any) -> Request:
    """All but the seed. Options that are no tokens have the same names in both."""
    plain = {name: getattr(sampling, name) for name in PLAIN_OPTIONS}
    return Request(
        row_index,
        tuple(token_ids),
        seed=0,
        logit_bias=tuple(sorted(sampling.logit_bias.items())),
        bad_words=bad_word_token_ids(sampling.bad_words, tokenizer),
        **plain,
    )


def prompt_token_ids(row: InputRow, system_prompt: str | None, tokenizer: Any) -> list[int]:
    """A prompt as it is, with the special tokens that the tokenizer adds; messages through its chat template."""
    if row.messages is not None:
        text = _chat_text(_checked_messages(row.messages, system_prompt), tokenizer)
        return list(tokenizer(text, add_special_tokens=False, verbose=False).input_ids)
    if not row.prompt:
        raise RowFailed("empty_prompt", "the prompt is empty; give it some text")
    return list(tokenizer(row.prompt, verbose=False).input_ids)


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
