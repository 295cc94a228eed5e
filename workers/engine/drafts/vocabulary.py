"""What two tokenizers have in common: everything, or some tokens."""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.engine.drafts.token_bytes import is_byte_token, special_tokens, token_bytes

NO_TOKEN = -1


def same_tokenizer(target_tokenizer: Any, draft_tokenizer: Any) -> bool:
    """Whether both encode every text alike. Sizes that models pad their embeddings to play no part."""
    if target_tokenizer is draft_tokenizer:
        return True
    if target_tokenizer.get_vocab() != draft_tokenizer.get_vocab():
        return False
    return _added_tokens(target_tokenizer) == _added_tokens(draft_tokenizer) and (
        _pipeline(target_tokenizer) == _pipeline(draft_tokenizer)
    )


def shared_vocabulary(target_tokenizer: Any, draft_tokenizer: Any) -> NDArray[np.int64]:
    """target_to_draft (num_target_tokens,): the draft's id of the same token, NO_TOKEN where the draft lacks it.

    Token-level intersection (Timor et al. 2025, arXiv 2502.05202): tokens are the same when they stand for the same
    bytes, special tokens as in `carried_tokens`. No two target tokens have the same draft token. Raises InvalidJob as
    `token_bytes` does.
    """
    target, draft = _ids_by_bytes(target_tokenizer), _ids_by_bytes(draft_tokenizer)
    pairs = {target[piece]: draft[piece] for piece in target.keys() & draft.keys()}
    target_to_draft = np.full(max(target_tokenizer.get_vocab().values()) + 1, NO_TOKEN, np.int64)
    for target_id, draft_id in (pairs | _one_to_one(carried_tokens(target_tokenizer, draft_tokenizer))).items():
        target_to_draft[target_id] = draft_id
    return target_to_draft


def carried_tokens(source_tokenizer: Any, dest_tokenizer: Any) -> dict[int, int]:
    """Special tokens that both have, by id: of equal content first, else EOS for EOS. Never one for plain text."""
    source, dest = special_tokens(source_tokenizer), special_tokens(dest_tokenizer)
    carried = {source[content]: dest[content] for content in source.keys() & dest.keys()}
    ends = source_tokenizer.eos_token_id, dest_tokenizer.eos_token_id
    if None not in ends:
        carried.setdefault(*ends)
    return carried


def _one_to_one(carried: dict[int, int]) -> dict[int, int]:
    """Of two tokens carried to the same one, the first: equal content before EOS for EOS."""
    sources = {dest: source for source, dest in reversed(carried.items())}
    return {source: dest for dest, source in sources.items()}


def _ids_by_bytes(tokenizer: Any) -> dict[bytes, int]:
    """Of a sentencepiece vocabulary's two tokens for one byte, the character rather than its notation as a byte."""
    pieces = token_bytes(tokenizer)
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: (not is_byte_token(item[0]), -item[1]))
    return {piece: index for _, index in tokens if (piece := pieces[index])}


def _added_tokens(tokenizer: Any) -> dict[int, tuple[Any, ...]]:
    """By id: content and every flag that changes what the token matches."""
    return {
        index: (str(token), token.special, token.lstrip, token.rstrip, token.single_word, token.normalized)
        for index, token in tokenizer.added_tokens_decoder.items()
    }


def _pipeline(tokenizer: Any) -> list[Any]:
    """Normalizer, pre-tokenizer and model (with its merges) as JSON; the class alone for a tokenizer in Python."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return [type(tokenizer)]
    parts = (backend.normalizer, backend.pre_tokenizer, backend.model)
    return [None if part is None else json.loads(part.__getstate__()) for part in parts]
