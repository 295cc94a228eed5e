"""Every outcome of rejection sampling with its exact probability, from the code that draws it.

What is drawn is decided by noise alone. So the noise is what is enumerated: the share of uniform numbers that lets a
drafted token stand is found by bisection, and what a race is run over is looked at when it is run.

A target over V tokens is given by its conditionals: [t] is the distribution of token t after each sequence of t tokens
before it, (V,) * (t + 1).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from schemas.generation import Request
from workers.engine import sampling, verification
from workers.engine.constraints import Logits
from workers.engine.sampling import BatchSampling, Probabilities, row_probabilities
from workers.engine.verification import Accepted, accept_rejection

_NUM_HALVINGS = 25
_LEAST_UNIFORM, _LARGEST_UNIFORM = 1e-300, 1 - 1e-15


class Outcomes(NamedTuple):
    """stays: (B, k), how likely a drafted token stands where all before it did. next_probs: (B, k + 1, V), what the
    target's token after j drafted ones is drawn from; zeros where that cannot happen."""

    stays: Tensor
    next_probs: Tensor


@dataclass
class Races:
    """The weights of the races that were run, each (B, T, V)."""

    weights: list[Tensor] = field(default_factory=list)

    def run(self, weights: Tensor, noise: Tensor) -> Tensor:
        self.weights.append(weights)
        return sampling.race(weights, noise)


@contextmanager
def recorded_races(module: object) -> Iterator[Races]:
    """The races that the module runs meanwhile."""
    races = Races()
    with patch.object(module, "race", races.run):
        yield races


def random_conditionals(options: dict[str, Any], vocab_size: int, num_tokens: int, seed: int) -> list[Tensor]:
    """Of random logits, drawn from as the options say."""
    request, generator = Request(0, (0,), 1, seed=0, **options), torch.Generator().manual_seed(seed)
    asked = BatchSampling.from_requests([request], torch.device("cpu"), vocab_size)
    shapes = [(1, vocab_size**place, vocab_size) for place in range(num_tokens)]
    probs = [row_probabilities(Logits(torch.randn(shape, generator=generator) * 2), asked) for shape in shapes]
    return [part.view([vocab_size] * (place + 1)) for place, part in enumerate(probs)]


def sampled_draft_error(target: Sequence[Tensor], draft: Sequence[Tensor], num_drafted: int) -> float:
    """Total variation between what rejection commits and the target's own distribution, for drafts that are drawn.

    target, draft: conditionals of k + 1 and of k > 0 tokens. num_drafted: how many of the k places are no padding.
    """
    drafted = all_sequences(target[0].shape[-1], len(draft))
    draft_probs = after_each(draft, drafted)
    mass = draft_probs.double().gather(-1, drafted[..., None]).prod(1)[:, 0]
    found = _outcomes_of(target, drafted, draft_probs, num_drafted)
    return total_variation(mass @ committed(drafted, found, target), joint(target))


def certain_draft_error(target: Sequence[Tensor], num_drafted: int) -> float:
    """The same for the worst of all drafts that are certain."""
    drafted = all_sequences(target[0].shape[-1], len(target) - 1)
    found = _outcomes_of(target, drafted, None, num_drafted)
    return max(total_variation(row, joint(target)) for row in committed(drafted, found, target))


def outcomes(accept: Callable[[], Accepted], num_rows: int, k: int) -> Outcomes:
    """accept: rejection sampling of B rows and k places."""
    stays = [_share_that_stands(accept, num_rows, place, k) for place in range(k)]
    next_probs = [_drawn_after(accept, num_rows, place, k) for place in range(k + 1)]
    stacked = torch.stack(stays, dim=1) if stays else torch.zeros(num_rows, 0, dtype=torch.float64)
    return Outcomes(stacked, torch.stack(next_probs, dim=1))


def committed(drafted: Tensor, found: Outcomes, conditionals: Sequence[Tensor]) -> Tensor:
    """How likely k + 1 tokens are after each draft (B, k), where plain decoding follows the round: (B, V^(k + 1))."""
    (num_rows, k), vocab_size = drafted.shape, conditionals[0].shape[-1]
    total = torch.zeros(num_rows, vocab_size ** (k + 1), dtype=torch.float64)
    prefix = torch.zeros(num_rows, dtype=torch.int64)
    reached = torch.ones(num_rows, dtype=torch.float64)
    for place in range(k + 1):
        stays = found.stays[:, place] if place < k else torch.zeros(num_rows)
        rest = _chained(conditionals, first=place + 1).view(vocab_size**place, vocab_size, -1)[prefix]
        after = (reached * (1 - stays))[:, None, None] * found.next_probs[:, place, :, None] * rest
        total.view(num_rows, vocab_size**place, -1)[torch.arange(num_rows), prefix] += after.flatten(1)
        if place < k:
            reached, prefix = reached * stays, prefix * vocab_size + drafted[:, place]
    return total


def joint(conditionals: Sequence[Tensor]) -> Tensor:
    """The distribution of whole sequences of T tokens, (V^T,)."""
    return _chained(conditionals, first=0).flatten()


def total_variation(p: Tensor, q: Tensor) -> float:
    return float((p - q).abs().sum()) / 2


def all_sequences(vocab_size: int, length: int) -> Tensor:
    """(V^length, length), the last token changing first."""
    return torch.tensor(list(product(range(vocab_size), repeat=length)), dtype=torch.int64).view(
        vocab_size**length, length
    )


def after_each(conditionals: Sequence[Tensor], drafted: Tensor) -> Probabilities:
    """The distribution at each position after the drafted tokens (B, k) before it, (B, T, V)."""
    places = [p[tuple(drafted[:, :t].T)] if t else p.expand(len(drafted), -1) for t, p in enumerate(conditionals)]
    return Probabilities(torch.stack(places, dim=1))


def _chained(conditionals: Sequence[Tensor], first: int) -> Tensor:
    """The probability of tokens from the first on, given all before them, (V,) * T."""
    num_tokens, vocab_size = len(conditionals), conditionals[0].shape[-1]
    factors = [p.double().view(*p.shape, *[1] * (num_tokens - p.dim())) for p in conditionals[first:]]
    return prod(factors, start=torch.ones([vocab_size] * num_tokens, dtype=torch.float64))


def _outcomes_of(
    target: Sequence[Tensor], drafted: Tensor, draft_probs: Probabilities | None, num_drafted: int
) -> Outcomes:
    num_rows, k = drafted.shape
    seeds, index = torch.zeros(num_rows, 2, dtype=torch.int32), torch.arange(k + 1).expand(num_rows, -1)
    windows, counts = after_each(target, drafted), torch.full((num_rows,), num_drafted)
    return outcomes(lambda: accept_rejection(drafted, counts, windows, draft_probs, seeds, index), num_rows, k)


def _share_that_stands(accept: Callable[[], Accepted], num_rows: int, place: int, k: int) -> Tensor:
    stands, falls = torch.zeros(num_rows, dtype=torch.float64), torch.ones(num_rows, dtype=torch.float64)
    uniform = _uniform(num_rows, place, k)
    for _ in range(_NUM_HALVINGS):
        uniform[:, place] = middle = (stands + falls) / 2
        is_in = _accept_with(accept, uniform)[0] > place
        stands, falls = torch.where(is_in, middle, stands), torch.where(is_in, falls, middle)
    return (stands + falls) / 2


def _drawn_after(accept: Callable[[], Accepted], num_rows: int, num_accepted: int, k: int) -> Tensor:
    counts, weights = _accept_with(accept, _uniform(num_rows, num_accepted, k))
    probs = weights / weights.sum(-1, keepdim=True)
    return torch.where((counts == num_accepted)[:, None], probs, 0.0)


def _uniform(num_rows: int, num_accepted: int, k: int) -> Tensor:
    """(B, k) numbers with which so many drafted tokens stand if they can, and the others fall if they can."""
    numbers = [_LEAST_UNIFORM] * num_accepted + [_LARGEST_UNIFORM] * (k - num_accepted)
    return torch.tensor(numbers, dtype=torch.float64).repeat(num_rows, 1)


def _accept_with(accept: Callable[[], Accepted], uniform: Tensor) -> tuple[Tensor, Tensor]:
    """(how many drafted tokens stand (B,), what the next is drawn from (B, V)) with these uniform numbers (B, k)."""
    given = patch.object(verification, "uniform_noise", lambda *_: uniform[..., None])
    with given, recorded_races(verification) as races:
        num_accepted = accept().num_accepted
    return num_accepted, races.weights[0][:, 0].double()
