"""From the target's logits to its tokens: the one place where sampling options act.

Tokens are drawn coupled (Daliri et al. 2024, "Coupling without communication and drafter-invariant speculative
decoding"): an exponential race, token = argmin(E / p), whose noise E belongs to the row, the generated index and the
token id. A token is distributed as p, and depends on nothing that was drafted.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NewType, Self

import torch
from torch import Tensor

from schemas.generation import Request
from workers.engine.constraints import Constraints, Context, Logits, constrain
from workers.engine.noise import exponential_noise, seed_words
from workers.engine.nucleus import nucleus_threshold

Probabilities = NewType("Probabilities", Tensor)  # not negative, sum to 1 over the vocabulary

# Below it scaled logits may overflow, while a draw has long been the argmax.
_LEAST_TEMPERATURE = 1e-5


@dataclass(frozen=True, slots=True)
class BatchSampling:
    """The sampling options of B rows. The host flags are fixed at construction, so reading them never waits.

    temperature: (B,) float32, 0 is greedy. top_k: (B,) int64, 0 is off. top_p, min_p: (B,) float32, 1 and 0 are off.
    seeds: (B, 2) int32, the row seeds' words. greedy: no row samples. max_top_k: the largest, 0 where all are off.
    constraints: None where no row has one.
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seeds: Tensor
    greedy: bool
    max_top_k: int
    uses_top_p: bool
    uses_min_p: bool
    constraints: Constraints | None = None

    @classmethod
    def from_requests(
        cls,
        requests: Sequence[Request | None],
        device: torch.device,
        vocab_size: int,
        eos_token_ids: Collection[int] = (),
    ) -> Self:
        """Options of the rows in their slots; None is an empty slot, which is greedy."""
        rows = [request if request and request.temperature > 0 else None for request in requests]
        top_k = [row.top_k if row else 0 for row in rows]
        top_p = [row.top_p if row else 1.0 for row in rows]
        min_p = [row.min_p if row else 0.0 for row in rows]
        temperature = [row.temperature if row else 0.0 for row in rows]
        return cls(
            temperature=torch.tensor(temperature, dtype=torch.float32).to(device),
            top_k=torch.tensor(top_k, dtype=torch.int64).to(device),
            top_p=torch.tensor(top_p, dtype=torch.float32).to(device),
            min_p=torch.tensor(min_p, dtype=torch.float32).to(device),
            seeds=seed_words([row.seed if row else 0 for row in rows]).to(device),
            greedy=not any(rows),
            max_top_k=max(top_k, default=0),
            uses_top_p=any(p < 1 for p in top_p),
            uses_min_p=any(p > 0 for p in min_p),
            constraints=Constraints.of(requests, vocab_size, eos_token_ids, device),
        )

    def at_temperature(self, temperature: float | None) -> Self:
        """The same options with another temperature for rows that sample; None leaves each its own."""
        if temperature is None:
            return self
        sampled = torch.where(self.temperature > 0, temperature, 0.0)
        return replace(self, temperature=sampled, greedy=self.greedy or temperature == 0)


def constrained(logits: Logits, sampling: BatchSampling, index: Tensor, context: Context | None) -> Logits:
    """The logits that rows draw from, (B, T, V). index: (B, T), of the generated token. context: for constraints."""
    if sampling.constraints is None:
        return logits
    assert context is not None
    return constrain(logits, sampling.constraints, index, context)


def target_tokens(logits: Logits, sampling: BatchSampling, noise: Tensor | None) -> Tensor:
    """The target's token at each position, (B, T) int64.

    logits: (B, T, V), constrained. noise: (B, T, V) of `target_noise`; not looked at where all rows are greedy.
    """
    best = logits.argmax(-1)
    if sampling.greedy:
        return best
    assert noise is not None
    drawn = race(probabilities(logits, sampling), noise)
    return torch.where(sampling.temperature[:, None] > 0, drawn, best)


def target_noise(sampling: BatchSampling, generated_index: Tensor, vocab_size: int) -> Tensor | None:
    """E (B, T, V) of the rows' own tokens; None where all rows are greedy. generated_index: (B, T)."""
    return None if sampling.greedy else exponential_noise(sampling.seeds, generated_index, vocab_size)


def race(weights: Tensor, noise: Tensor) -> Tensor:
    """The first token to arrive at each position, (B, T) int64, where token v arrives at time E[v] / weights[v].

    weights: (B, T, V), a distribution up to its sum. noise: (B, T, V).
    """
    return (noise / weights).argmin(-1)  # E / 0 = inf: a token without mass never arrives


def row_probabilities(logits: Logits, sampling: BatchSampling) -> Probabilities:
    """What each row draws from, (B, T, V) float32: `probabilities`, and for greedy rows all mass on the best token."""
    best = torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    if sampling.greedy:
        return Probabilities(best)
    is_sampled = sampling.temperature[:, None, None] > 0
    return Probabilities(torch.where(is_sampled, probabilities(logits, sampling), best))


def probabilities(logits: Logits, sampling: BatchSampling) -> Probabilities:
    """What sampled rows draw from, (B, T, V) float32: temperature, then top-k, top-p, min-p. Not for greedy rows."""
    temperature = torch.where(sampling.temperature > 0, sampling.temperature.clamp(min=_LEAST_TEMPERATURE), 1.0)
    scaled = Logits(logits.float() / temperature[:, None, None])
    if sampling.max_top_k:
        scaled = keep_top_k(scaled, sampling.top_k, sampling.max_top_k)
    probs = Probabilities(scaled.softmax(-1))
    if sampling.uses_top_p:
        probs = keep_from(probs, nucleus_threshold(probs, sampling.top_p))
    if sampling.uses_min_p:
        probs = keep_from(probs, sampling.min_p[:, None, None] * probs.amax(-1, keepdim=True))
    return probs


def keep_top_k(logits: Logits, top_k: Tensor, max_top_k: int) -> Logits:
    """-inf for all but each row's top_k (B,) largest; tokens equal to the last one kept stay too."""
    vocab_size = logits.shape[-1]
    largest = logits.topk(min(max_top_k, vocab_size)).values
    last = (top_k.clamp(1, vocab_size) - 1)[:, None, None].expand(*logits.shape[:-1], 1)
    threshold = largest.gather(-1, last).masked_fill(top_k[:, None, None] == 0, float("-inf"))
    return Logits(torch.where(logits < threshold, float("-inf"), logits))


def keep_from(probs: Probabilities, threshold: Tensor) -> Probabilities:
    """Zero for tokens below the threshold (B, T, 1); the others share the mass."""
    kept = torch.where(probs < threshold, 0.0, probs)
    return Probabilities(kept.div_(kept.sum(-1, keepdim=True)))
