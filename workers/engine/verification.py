"""Which drafted tokens stand, and the target's token after them: two rules, both lossless.

Coupled: the target's token at each place is fixed by the row's own noise, and a drafted token stands where it is that
token (Daliri et al. 2024, arXiv 2408.07978). What is drafted changes no token.

Rejection: a drafted token x stands with probability min(1, p(x) / q(x)), and the first that falls is drawn anew from
the residual max(p - q, 0) (Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318). What is
drafted changes no distribution.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from workers.engine.noise import ACCEPT, exponential_noise, uniform_noise
from workers.engine.sampling import Probabilities, race


class Accepted(NamedTuple):
    """What the target made of the windows: tokens (B, T), of which a row takes the first num_accepted (B,) + 1."""

    tokens: Tensor
    num_accepted: Tensor


def accept_coupled(drafted: Tensor, num_drafted: Tensor, target_tokens: Tensor) -> Accepted:
    """drafted: (B, k). num_drafted: (B,), the rest is padding. target_tokens: (B, k + 1), drawn at each place."""
    agrees = drafted == target_tokens[:, :-1]
    return Accepted(target_tokens, _length_of_run(agrees, num_drafted))


def accept_rejection(
    drafted: Tensor,
    num_drafted: Tensor,
    target_probs: Probabilities,
    draft_probs: Probabilities | None,
    seeds: Tensor,
    generated_index: Tensor,
) -> Accepted:
    """drafted: (B, k). target_probs: (B, k + 1, V). draft_probs: (B, k, V) that drafted was drawn from; None where each
    token was certain. seeds: (B, 2). generated_index: (B, k + 1)."""
    u = uniform_noise(seeds, generated_index[:, :-1], 1, ACCEPT)[..., 0]  # (B, k)
    num_accepted = _length_of_run(stands(u, drafted, target_probs[:, :-1], draft_probs), num_drafted)
    weights = _next_weights(drafted, num_drafted, num_accepted, target_probs, draft_probs)
    next_index = generated_index.gather(1, num_accepted[:, None])
    next_token = race(weights[:, None], exponential_noise(seeds, next_index, weights.shape[-1]))  # (B, 1)
    padded = torch.cat([drafted, torch.zeros_like(next_token)], dim=1)
    return Accepted(padded.scatter(1, num_accepted[:, None], next_token), num_accepted)


def stands(u: Tensor, drafted: Tensor, target_probs: Tensor, draft_probs: Tensor | None) -> Tensor:
    """u < p(x) / q(x), (B, k); strictly, so that a token without mass falls whatever u is."""
    p = target_probs.gather(-1, drafted[..., None])[..., 0]
    q = 1.0 if draft_probs is None else draft_probs.gather(-1, drafted[..., None])[..., 0]
    return u * q < p


def residual(target_probs: Tensor, draft_probs: Tensor) -> Tensor:
    """max(p - q, 0) (B, V), which a fallen token is drawn anew from; p where rounding leaves it nothing."""
    rest = (target_probs - draft_probs).clamp(min=0)
    return torch.where(rest.sum(-1, keepdim=True) > 0, rest, target_probs)


def _next_weights(
    drafted: Tensor, num_drafted: Tensor, num_accepted: Tensor, target_probs: Tensor, draft_probs: Tensor | None
) -> Tensor:
    """(B, V): the residual where a drafted token fell, else the target's own distribution after the last one."""
    vocab_size = target_probs.shape[-1]
    p = _at(target_probs, num_accepted)
    if drafted.shape[1] == 0:
        return p
    place = num_accepted.clamp(max=drafted.shape[1] - 1)
    if draft_probs is None:
        fallen = drafted.gather(1, place[:, None])[:, 0]
        q = torch.nn.functional.one_hot(fallen, vocab_size).to(p.dtype)
    else:
        q = _at(draft_probs, place)
    return torch.where((num_accepted < num_drafted)[:, None], residual(p, q), p)


def _at(probs: Tensor, place: Tensor) -> Tensor:
    """(B, V) at one place (B,) of each row's (B, T, V)."""
    return probs.gather(1, place[:, None, None].expand(-1, 1, probs.shape[-1]))[:, 0]


def _length_of_run(is_good: Tensor, num_drafted: Tensor) -> Tensor:
    """How many of a row's drafted tokens are good before the first that is not, (B,)."""
    is_draft = torch.arange(is_good.shape[1], device=is_good.device) < num_drafted[:, None]
    return (is_good & is_draft).long().cumprod(1).sum(1)
