"""A loaded model is tried on a few tokens: which rows can share a batch without changing each other's logits."""

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor

from workers.engine.families import Sharing
from workers.engine.plain.calling import call_generate, leave_only
from workers.engine.self_check import tolerance

_NUM_STEPS = 3
_PROMPT_LENGTHS: dict[Sharing, tuple[int, ...]] = {"padded": (1, 5, 9), "equal": (6, 6, 6), "alone": (6,)}

logger = logging.getLogger(__name__)


def measured_sharing(model: Any, at_most: Sharing) -> tuple[Sharing, int]:
    """(the freest sharing up to at_most that leaves logits alone, the logits' width).

    Configs do not tell all: some models take a batch of recurrent states for something else, or route by batch.
    """
    kinds: list[Sharing] = ["padded", "equal", "alone"]
    for sharing in kinds[kinds.index(at_most) :]:
        prompts = _prompts(model, _PROMPT_LENGTHS[sharing])
        alone = torch.cat([_logits(model, [prompt]) for prompt in prompts], dim=1)
        difference = float((_logits(model, prompts) - alone).abs().mean() / alone.std())
        if sharing == "alone" or difference <= tolerance(model.dtype):
            break
        logger.warning("%s rows would change each other (by %.2g of their logits' spread)", sharing, difference)
    return sharing, alone.shape[-1]


def _prompts(model: Any, lengths: Sequence[int]) -> list[list[int]]:
    """Token ids from all over the vocabulary, so that no two positions look alike."""
    num_ids = model.get_input_embeddings().weight.shape[0]
    step, token_ids = num_ids * 5 // 13, iter(range(1, sum(lengths) + 1))
    return [[next(token_ids) * step % num_ids for _ in range(length)] for length in lengths]


def _logits(model: Any, prompts: Sequence[Sequence[int]]) -> Tensor:
    """(steps, B, V), while every row goes on with the same tokens."""
    asked = {"return_dict_in_generate": True, "output_logits": True}
    output = call_generate(model, prompts, _NUM_STEPS, _Fixed(), **asked)
    return torch.stack(output.logits).float()


class _Fixed(LogitsProcessor):  # type: ignore[misc]
    """Every row's next token is the same, whatever the model says."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        tokens = torch.full_like(input_ids[:, :1], scores.shape[1] // 3)
        return leave_only(tokens, scores)
