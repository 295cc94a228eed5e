"""One call of `model.generate` over a padded batch."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

# What an encoder-decoder was trained to begin with and never to say. It holds for every row alike.
_FORMAT = ("forced_bos_token_id", "suppress_tokens", "begin_suppress_tokens", "bad_words_ids")


def neutralise(model: Any) -> None:
    """Leaves nothing in the model's generation config that would choose tokens or end rows; its EOS ids go too.

    Raises ValueError where an encoder-decoder names no token that its decoder starts with.
    """
    own = model.generation_config
    kept: dict[str, Any] = {"bos_token_id": own.bos_token_id, "do_sample": False, "use_cache": True}
    if model.config.is_encoder_decoder:
        kept |= {name: getattr(own, name, None) for name in _FORMAT}
        kept["decoder_start_token_id"] = _decoder_start(own, model.config)
    model.generation_config = GenerationConfig(**kept)


def call_generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    processor: LogitsProcessor | None = None,
    criterion: StoppingCriteria | None = None,
    **settings: Any,
) -> Any:
    """What `generate` of a `neutralise`d model returns: greedy, so it takes the token that the processor leaves.

    settings: of its generation config.
    """
    token_ids, mask = padded(prompts, model)
    config = deepcopy(model.generation_config)
    config.update(max_new_tokens=max_new_tokens, **settings)
    return model.generate(
        input_ids=token_ids,
        attention_mask=mask,
        generation_config=config,
        logits_processor=LogitsProcessorList([] if processor is None else [processor]),
        stopping_criteria=StoppingCriteriaList([] if criterion is None else [criterion]),
    )


def padded(prompts: Sequence[Sequence[int]], model: Any) -> tuple[Tensor, Tensor]:
    """(token ids, attention mask), both (B, L): a decoder goes on at the right edge, so its padding is on the left."""
    length = max(map(len, prompts))
    token_ids = torch.full((len(prompts), length), max(getattr(model.config, "pad_token_id", None) or 0, 0))
    mask = torch.zeros_like(token_ids)
    for row, prompt in enumerate(prompts):
        begin = 0 if model.config.is_encoder_decoder else length - len(prompt)
        token_ids[row, begin : begin + len(prompt)] = torch.tensor(prompt)
        mask[row, begin : begin + len(prompt)] = 1
    return token_ids.to(model.device), mask.to(model.device)


def leave_only(tokens: Tensor, scores: Tensor) -> Tensor:
    """Scores (B, V) whose argmax is each row's token; tokens: (B, 1)."""
    return torch.full_like(scores, float("-inf")).scatter(1, tokens, 0.0)


def _decoder_start(own: GenerationConfig, config: Any) -> int:
    named = [own.decoder_start_token_id, getattr(config, "decoder_start_token_id", None), own.bos_token_id]
    starts: list[int] = [token_id for token_id in named if token_id is not None]
    if not starts:
        raise ValueError("its config names no decoder_start_token_id; add it to its generation_config.json")
    return starts[0]
