"""Many rows at once over a target and a draft that are two tables, and whether what they say may be the target's.

Noise is fixed by the rows' seeds, so that a check of these passes or fails for good.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy.stats import chisquare
from torch import Tensor

from schemas.generation import Request
from schemas.job import Verification
from schemas.seeds import derive_row_seed
from workers.engine.constraints import Logits
from workers.engine.noise import DRAFT, exponential_noise, seed_words
from workers.engine.sampling import BatchSampling, Probabilities, race, row_probabilities
from workers.engine.verification import Accepted, accept_coupled, accept_rejection

LEAST_P_VALUE = 1e-3
_FEWEST_EXPECTED = 5


@dataclass(frozen=True)
class Tables:
    """What follows the last token, (V, V) each; a row begins after token 0."""

    target: Tensor
    draft: Tensor


@dataclass(frozen=True)
class Said:
    """tokens: (B, T). bonus: (N, 2), of first rounds in which all drafted tokens stood: the last one, and the next."""

    tokens: Tensor
    bonus: Tensor


def random_tables(vocab_size: int, options: dict[str, Any], draft_options: dict[str, Any], seed: int = 0) -> Tables:
    """Drawn from as the options say."""
    generator = torch.Generator().manual_seed(seed)
    target, other = torch.randn(2, 1, vocab_size, vocab_size, generator=generator)
    return Tables(_drawn_from(target, options), _drawn_from(target + other, draft_options))


@cache
def row_seeds(num_rows: int) -> Tensor:
    """(B, 2), of neighbouring rows of a job."""
    return seed_words([derive_row_seed(7, row) for row in range(num_rows)])


def say(tables: Tables, seeds: Tensor, num_tokens: int, k: int, verification: Verification) -> Said:
    """A first token as of a prefill, then rounds until every row has its tokens; bonus is empty for k = 0."""
    num_rows, vocab_size = len(seeds), len(tables.target)
    tokens = torch.zeros(num_rows, 2 + num_tokens + k, dtype=torch.int64)  # token 0, then those that were said
    start = torch.zeros(num_rows, 1, dtype=torch.int64)
    tokens[:, 1:2] = race(tables.target[start], exponential_noise(seeds, start, vocab_size))
    num_said, bonus = torch.ones(num_rows, 1, dtype=torch.int64), tokens[:0, :2]
    while int(num_said.min()) < num_tokens:
        num_drafted = (num_tokens - num_said[:, 0] - 1).clamp(0, k)
        last, index = tokens.gather(1, num_said), num_said + torch.arange(k + 1)
        accepted = _round(tables, seeds, last, index, num_drafted, verification)
        is_said = (torch.arange(k + 1) <= accepted.num_accepted[:, None]) & (num_said < num_tokens)
        tokens.scatter_(1, index + 1, torch.where(is_said, accepted.tokens, 0))
        if k and not len(bonus):
            bonus = accepted.tokens[accepted.num_accepted == k, k - 1 :]
        num_said = num_said + is_said.sum(1, keepdim=True)
    return Said(tokens[:, 1 : 1 + num_tokens], bonus)


def p_value(tables: Tables, said: Said) -> float:
    """Whether each token, each pair and the bonus tokens may be the target's: the least p-value, after Bonferroni."""
    num_tokens, tokens = said.tokens.shape[1], said.tokens.numpy()
    single, target = [tables.target[0].double().numpy()], tables.target.double().numpy()
    for _ in range(num_tokens - 1):
        single.append(single[-1] @ target)
    pairs = [(p[:, None] * target).ravel() for p in single[:-1]]
    values = [chi_square(tokens[:, t], p) for t, p in enumerate(single)]
    values += [chi_square(tokens[:, t] * len(target) + tokens[:, t + 1], p) for t, p in enumerate(pairs)]
    return bonferroni([*values, *_bonus_p_values(target, said.bonus.numpy())])


def chi_square(drawn: np.ndarray, probs: np.ndarray) -> float:
    """p-value of what was drawn under probs (V,): rare outcomes count as one, and none is impossible."""
    counts = np.bincount(drawn, minlength=len(probs))
    expected = probs / probs.sum() * counts.sum()
    if counts[probs == 0].any():
        return 0.0
    rare = expected < _FEWEST_EXPECTED
    observed, wanted = (np.append(part[~rare], part[rare].sum()) for part in (counts, expected))
    present = wanted > 0
    return float(chisquare(observed[present], wanted[present]).pvalue)


def bonferroni(p_values: Sequence[float]) -> float:
    return min(1.0, min(p_values) * len(p_values))


def _bonus_p_values(target: np.ndarray, bonus: np.ndarray) -> Iterator[float]:
    for last in np.unique(bonus[:, 0]):
        yield chi_square(bonus[bonus[:, 0] == last, 1], target[last])


def _round(
    tables: Tables, seeds: Tensor, last: Tensor, index: Tensor, num_drafted: Tensor, verification: Verification
) -> Accepted:
    """last: (B, 1). index: (B, k + 1)."""
    k, vocab_size = index.shape[1] - 1, len(tables.target)
    is_coupled = verification == "coupled"
    shared = exponential_noise(seeds, index, vocab_size) if is_coupled else None
    noise = shared if shared is not None else exponential_noise(seeds, index[:, :k], vocab_size, DRAFT)
    windows = [last]
    for step in range(k):
        windows.append(race(tables.draft[windows[-1]], noise[:, step : step + 1]))
    window = torch.cat(windows, dim=1)
    drafted, target_probs = window[:, 1:], Probabilities(tables.target[window])
    if shared is not None:
        return accept_coupled(drafted, num_drafted, race(target_probs, shared))
    draft_probs = Probabilities(tables.draft[window[:, :-1]]) if k else None
    return accept_rejection(drafted, num_drafted, target_probs, draft_probs, seeds, index)


def _drawn_from(logits: Tensor, options: dict[str, Any]) -> Tensor:
    request = Request(0, (0,), 1, seed=0, **options)
    sampling = BatchSampling.from_requests([request], torch.device("cpu"), logits.shape[-1])
    return row_probabilities(Logits(logits), sampling)[0]
