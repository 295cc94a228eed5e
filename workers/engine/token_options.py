"""Options that name tokens: bad words as sequences of token ids, and ids that the model has to have."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from schemas.errors import InvalidJob, RowFailed
from schemas.job import JobSpec, RowParams

# How vocabularies write a space at the front of a token: SentencePiece's and byte-level BPE's.
SPACE_MARKS = ("\u2581", "\u0120")
NUM_CACHED_WORDS = 4096


def check_job_tokens(spec: JobSpec, tokenizer: Any, vocab_size: int) -> None:
    """Raises InvalidJob naming the option and the token or text that is wrong."""
    problem = _problem(spec, tokenizer, vocab_size)
    if problem is not None:
        name, reason = problem
        raise InvalidJob(f"--{name.replace('_', '-')}: {reason}")


def check_row_tokens(params: RowParams, tokenizer: Any, vocab_size: int) -> None:
    """Raises RowFailed `bad_params` naming the key and the token or text that is wrong."""
    problem = _problem(params, tokenizer, vocab_size)
    if problem is not None:
        name, reason = problem
        raise RowFailed("bad_params", f"params: {name}: {reason}")


def bad_word_token_ids(words: Sequence[str], tokenizer: Any) -> tuple[tuple[int, ...], ...]:
    """What the engine must not generate, so that none of the texts comes at the start of a word or inside of one.

    As vLLM's `bad_words`: only these tokens; a text that the tokenizer could also spell with others may come.
    """
    return tuple(ids for word in words for ids in _word_token_ids(word, tokenizer))


@lru_cache(maxsize=NUM_CACHED_WORDS)
def _word_token_ids(word: str, tokenizer: Any) -> tuple[tuple[int, ...], ...]:
    """The word's tokens without and with a space before it; once where both are the same."""
    bare_word = word.lstrip(" ")
    if not bare_word:
        return (_token_ids(word, tokenizer),)
    bare = _token_ids(bare_word, tokenizer)
    if not bare or tokenizer.convert_ids_to_tokens(bare[0]).startswith(SPACE_MARKS):
        return (bare,)  # the tokenizer puts a space there itself; another would be a second one
    spaced = _token_ids(f" {bare_word}", tokenizer)
    return (bare,) if spaced == bare else (bare, spaced)


def _token_ids(text: str, tokenizer: Any) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False, verbose=False).input_ids)


def _problem(options: JobSpec | RowParams, tokenizer: Any, vocab_size: int) -> tuple[str, str] | None:
    """(option, what is wrong with it) for the first that the model cannot take."""
    words = {word: _word_token_ids(word, tokenizer) for word in options.bad_words or ()}
    named: dict[str, Sequence[int]] = {
        "logit_bias": tuple(options.logit_bias or ()),
        "stop_token_ids": options.stop_token_ids or (),
        "bad_words": [token_id for sequences in words.values() for ids in sequences for token_id in ids],
    }
    for name, token_ids in named.items():
        if token_ids and max(token_ids) >= vocab_size:
            return name, f"there is no token {max(token_ids)}; the model has {vocab_size}, from 0"
    empty = next((word for word, sequences in words.items() if not all(sequences)), None)
    return None if empty is None else ("bad_words", f"{empty!r} has no tokens")
