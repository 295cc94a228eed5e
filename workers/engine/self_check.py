"""A loaded model is tried on a few tokens: ragged rows over the cache must give the logits of whole sequences.

Families that cannot are refused by their config; this catches the ones whose config does not tell.
"""

import torch
from torch import Tensor

from schemas.errors import InvalidJob
from workers.engine.cache import RaggedCache
from workers.engine.families import GENERATE_RUNS_IT
from workers.engine.target import Target

_PROMPT_LENGTHS = (5, 9)
_WINDOW = 3
_LENGTH = max(_PROMPT_LENGTHS) + _WINDOW

# Mean difference of logits in units of their spread. Rounding gives 1e-6 and 1e-2; a wrong mask or position, 0.1 to 1.
_TOLERANCE = {torch.float32: 1e-3}
_HALF_TOLERANCE = 0.1


def check_ragged_decoding(target: Target) -> None:
    """Raises InvalidJob where the model's logits are not those of its own forward without a cache."""
    difference = ragged_difference(target)
    if not difference <= tolerance(target.model.dtype):  # NaN is refused too
        raise InvalidJob(
            f"model family {target.config.model_type} is not supported by engine speculative: decoding over a cache of "
            f"ragged rows gives other logits than whole sequences (by {difference:.2g} of their spread); "
            f"{GENERATE_RUNS_IT}"
        )


def tolerance(dtype: torch.dtype) -> float:
    """The mean difference, in units of the logits' spread, up to which two ways to compute them are the same."""
    return _TOLERANCE.get(dtype, _HALF_TOLERANCE)


@torch.inference_mode()
def ragged_difference(target: Target) -> float:
    """The mean difference of logits, over their standard deviation."""
    token_ids = _token_ids(target)
    expected = torch.cat([_whole(target, row, n) for row, n in zip(token_ids, _PROMPT_LENGTHS, strict=True)])
    found = _ragged(target, token_ids)
    return float((found - expected).abs().mean() / expected.std())


def _token_ids(target: Target) -> Tensor:
    """Tokens (2, L) from all over the vocabulary, so that no two positions look alike."""
    steps = torch.arange(2 * _LENGTH, device=target.device).view(2, _LENGTH) + 1
    return (steps * (target.vocab_size * 5 // 13)) % target.vocab_size


def _whole(target: Target, token_ids: Tensor, num_prompt_tokens: int) -> Tensor:
    """Logits (1, 1 + window, V) from the last prompt position on, without a cache."""
    whole = token_ids[None, : num_prompt_tokens + _WINDOW]
    logits: Tensor = target.model(input_ids=whole, use_cache=False).logits
    return logits[:, num_prompt_tokens - 1 :].float()


def _ragged(target: Target, token_ids: Tensor) -> Tensor:
    """The same for both rows, (2, 1 + window, V): one padded prefill, then one window at each row's own positions."""
    cache = RaggedCache(target.kv_shapes, 2, _LENGTH, target.device)
    lengths = torch.tensor(_PROMPT_LENGTHS, device=target.device)
    positions = torch.arange(max(_PROMPT_LENGTHS), device=target.device).expand(2, -1)
    cache.at_prompts(torch.arange(2, device=target.device))
    masks = target.attention_masks(positions, positions.shape[1])
    first = target.logits(token_ids[:, : positions.shape[1]], positions, masks, cache, at=lengths - 1)
    positions = lengths[:, None] + torch.arange(_WINDOW, device=target.device)
    cache.at_windows(positions, _LENGTH)
    window = target.logits(token_ids.gather(1, positions), positions, target.attention_masks(positions, _LENGTH), cache)
    return torch.cat([first, window], dim=1).float()
