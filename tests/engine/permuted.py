"""A model and its tokenizer with another numbering of the same tokens: it says the same in other ids."""

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_ID_OPTIONS = ("bos_token_id", "eos_token_id", "pad_token_id")


def permuted_tokenizer(tokenizer: Any, seed: int) -> tuple[PreTrainedTokenizerFast, list[int]]:
    """The tokenizer with every id replaced by permutation[id]; contents and merges stay."""
    permutation = list(range(len(tokenizer)))
    random.Random(seed).shuffle(permutation)
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    _permute_state(state, tokenizer.get_vocab(), permutation)
    backend = Tokenizer.from_str(json.dumps(state))
    named = {name: getattr(tokenizer, name) for name in _NAMED if getattr(tokenizer, name) is not None}
    permuted = PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False, **named)
    permuted.chat_template = tokenizer.chat_template
    return permuted, permutation


def _permute_state(state: dict[str, Any], vocabulary: dict[str, int], permutation: Sequence[int]) -> None:
    """Added tokens go into the model's vocabulary: outside it, their ids would follow the others'."""
    ids = {content: permutation[index] for content, index in vocabulary.items()}
    state["model"]["vocab"] = dict(sorted(ids.items(), key=lambda item: item[1]))
    for token in state["added_tokens"]:
        token["id"] = ids[token["content"]]
    state["added_tokens"].sort(key=lambda token: token["id"])
    _permute_template(state["post_processor"] or {}, permutation)


def _permute_template(step: dict[str, Any], permutation: Sequence[int]) -> None:
    for token in step.get("special_tokens", {}).values():
        token["ids"] = [permutation[index] for index in token["ids"]]
    for inner in step.get("processors", ()):
        _permute_template(inner, permutation)


@torch.no_grad()
def permuted_model(model: Any, permutation: Sequence[int]) -> Any:
    """A copy whose embedding, head and EOS ids are numbered so; rows past the permutation are padding and stay."""
    permuted = copy.deepcopy(model)
    embedding, head = permuted.get_input_embeddings(), permuted.get_output_embeddings()
    tables = {id(tensor): tensor for tensor in (embedding.weight, head.weight, getattr(head, "bias", None))}
    for table in tables.values():  # a tied head is the embedding itself
        if table is not None:
            table[torch.tensor(permutation, device=table.device)] = table[: len(permutation)].clone()
    for config in (permuted.config, permuted.generation_config):
        for name in _ID_OPTIONS:
            setattr(config, name, _permuted_ids(getattr(config, name, None), permutation))
    return permuted


def _permuted_ids(ids: Any, permutation: Sequence[int]) -> Any:
    if isinstance(ids, list):
        return [permutation[index] for index in ids]
    return ids if ids is None else permutation[ids]
