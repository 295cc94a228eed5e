"""From the target's logits to its tokens: the one place where sampling options act.

Tokens are drawn coupled (Daliri et al. 2024, "Coupling without communication and drafter-invariant speculative
decoding"): an exponential race, token = argmin(E / p), whose noise E belongs to the row, the generated index and the
token id. A token is distributed as p, and depends on nothing that was drafted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType, Self

import torch
from torch import Tensor

from schemas.generation import Request
from workers.engine.noise import exponential_noise, seed_words
from workers.engine.nucleus import nucleus_threshold

Logits = NewType("Logits", Tensor)  # any real numbers; -inf for a token that cannot be drawn
Probabilities = NewType("Probabilities", Tensor)  # not negative, sum to 1 over the vocabulary

# Below it scaled logits may overflow, while a draw has long been the argmax.
_LEAST_TEMPERATURE = 1e-5


@dataclass(frozen=True, slots=True)
class BatchSampling:
    """The sampling options of B rows. The host flags are fixed at construction, so reading them never waits.

    temperature: (B,) float32, 0 is greedy. top_k: (B,) int64, 0 is off. top_p: (B,) float32, 1 is off.
    seeds: (B, 2) int32, the row seeds' words. greedy: no row samples. max_top_k: the largest, 0 where all are off.
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    seeds: Tensor
    greedy: bool
    max_top_k: int
    uses_top_p: bool

    @classmethod
    def from_requests(cls, requests: Sequence[Request | None], device: torch.device) -> Self:
        """Options of the rows in their slots; None is an empty slot, which is greedy."""
        rows = [request if request and request.temperature > 0 else None for request in requests]
        top_k = [row.top_k if row else 0 for row in rows]
        top_p = [row.top_p if row else 1.0 for row in rows]
        temperature = [row.temperature if row else 0.0 for row in rows]
        return cls(
            temperature=torch.tensor(temperature, dtype=torch.float32).to(device),
            top_k=torch.tensor(top_k, dtype=torch.int64).to(device),
            top_p=torch.tensor(top_p, dtype=torch.float32).to(device),
            seeds=seed_words([row.seed if row else 0 for row in rows]).to(device),
            greedy=not any(rows),
            max_top_k=max(top_k, default=0),
            uses_top_p=any(p < 1 for p in top_p),
        )


def target_tokens(logits: Logits, sampling: BatchSampling, generated_index: Tensor) -> Tensor:
    """The target's token at each position, (B, T) int64.

    logits: (B, T, V). generated_index: (B, T), how many tokens the row has generated before this one.
    """
    best = logits.argmax(-1)
    if sampling.greedy:
        return best
    drawn = draw_tokens(probabilities(logits, sampling), sampling.seeds, generated_index)
    return torch.where(sampling.temperature[:, None] > 0, drawn, best)


def draw_tokens(probs: Probabilities, seeds: Tensor, generated_index: Tensor) -> Tensor:
    """The first token to arrive at each position, (B, T) int64, where token v arrives at time E[v] / probs[v].

    probs: (B, T, V). seeds: (B, 2) int32 words. generated_index: (B, T).
    """
    noise = exponential_noise(seeds, generated_index, probs.shape[-1])
    return noise.div_(probs).argmin(-1)  # E / 0 = inf: a token without mass never arrives


def probabilities(logits: Logits, sampling: BatchSampling) -> Probabilities:
    """What the rows draw from, (B, T, V) float32: temperature, then top-k, then top-p. Greedy rows' are not used."""
    temperature = torch.where(sampling.temperature > 0, sampling.temperature.clamp(min=_LEAST_TEMPERATURE), 1.0)
    scaled = Logits(logits.float() / temperature[:, None, None])
    if sampling.max_top_k:
        scaled = keep_top_k(scaled, sampling.top_k, sampling.max_top_k)
    probs = Probabilities(scaled.softmax(-1))
    return keep_top_p(probs, sampling.top_p) if sampling.uses_top_p else probs


def keep_top_k(logits: Logits, top_k: Tensor, max_top_k: int) -> Logits:
    """-inf for all but each row's top_k (B,) largest; tokens equal to the last one kept stay too."""
    vocab_size = logits.shape[-1]
    largest = logits.topk(min(max_top_k, vocab_size)).values
    last = (top_k.clamp(1, vocab_size) - 1)[:, None, None].expand(*logits.shape[:-1], 1)
    threshold = largest.gather(-1, last).masked_fill(top_k[:, None, None] == 0, float("-inf"))
    return Logits(torch.where(logits < threshold, float("-inf"), logits))


def keep_top_p(probs: Probabilities, top_p: Tensor) -> Probabilities:
    """Zero for all but the smallest set of most probable tokens with a mass of at least top_p (B,).

    Tokens equal to the last one kept stay too.
    """
    kept = torch.where(probs < nucleus_threshold(probs, top_p), 0.0, probs)
    return Probabilities(kept.div_(kept.sum(-1, keepdim=True)))
