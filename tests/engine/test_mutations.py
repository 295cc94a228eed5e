"""The tests of verification can fail: mistakes that are known from other engines are made on purpose, and caught."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.engine import test_coupled, test_rejection
from workers.engine import noise, speculative, verification
from workers.engine.constraints import Context, Logits
from workers.engine.drafts.model import TokenDrafting
from workers.engine.noise import TARGET
from workers.engine.sampling import BatchSampling, constrained

pytestmark = pytest.mark.engine

TOP_K, PENALISED = test_rejection.OPTIONS[2], test_rejection.CONSTRAINTS[0]
SEEING = test_rejection.CONSTRAINTS[:3]  # what looks at the drafted tokens before a position
SAMPLED = {"temperature": 1.0}
drawn_exactly = partial(test_rejection.test_any_draft_that_is_drawn_leaves_the_targets_distribution, SAMPLED, TOP_K)
certain_exactly = partial(
    test_rejection.test_each_draft_that_is_certain_leaves_the_targets_distribution, SAMPLED, vocab_size=4, k=2
)
model_rounds = test_rejection.test_a_round_with_a_model_draft_leaves_the_targets_distribution
certain_rounds = test_rejection.test_a_round_with_any_certain_draft_leaves_the_targets_distribution
rejection_draws = partial(test_rejection.test_many_draws_are_the_targets, SAMPLED, {"temperature": 0.7}, k=1)
coupled_draws = partial(test_coupled.test_many_draws_are_the_targets, *test_coupled.DRAWN[0], k=1)
rejection_engine = partial(test_rejection.test_what_the_engine_draws_is_the_targets, "counting")
coupled_tokens = test_coupled.test_every_draft_ends_in_the_references_tokens

_draw, _next_weights, _at = TokenDrafting._draw, verification._next_weights, verification._at
_index, _noise_bits = speculative._index, noise.noise_bits


def raw_draft_probs(drafting: TokenDrafting, logits: Logits, *rest: Any) -> tuple[Tensor, Tensor]:
    return _draw(drafting, logits, *rest)[0], logits.softmax(-1)


def no_bonus(drafted: Tensor, num_drafted: Tensor, *rest: Any) -> Tensor:
    """The residual after the last drafted token, too, though it stands."""
    return _next_weights(drafted, num_drafted + 1, *rest)


def no_residual(target_probs: Tensor, draft_probs: Tensor) -> Tensor:
    return target_probs


def unclamped_residual(target_probs: Tensor, draft_probs: Tensor) -> Tensor:
    return (target_probs - draft_probs).abs()


def softmax_residual(target_probs: Tensor, draft_probs: Tensor) -> Tensor:
    return (target_probs - draft_probs).clamp(min=0).softmax(-1)


def one_place_late(probs: Tensor, place: Tensor) -> Tensor:
    return _at(probs, (place + 1).clamp(max=probs.shape[1] - 1))


def not_strictly(u: Tensor, drafted: Tensor, target_probs: Tensor, draft_probs: Tensor | None) -> Tensor:
    p = target_probs.gather(-1, drafted[..., None])[..., 0]
    q = 1.0 if draft_probs is None else draft_probs.gather(-1, drafted[..., None])[..., 0]
    return u * q <= p


def without_q(u: Tensor, drafted: Tensor, target_probs: Tensor, draft_probs: Tensor | None) -> Tensor:
    return u < target_probs.gather(-1, drafted[..., None])[..., 0]


def with_padding(is_good: Tensor, num_drafted: Tensor) -> Tensor:
    return is_good.long().cumprod(1).sum(1)


def index_early(heads: Tensor, num_positions: int) -> Tensor:
    return _index(heads, num_positions) - 1


def index_late(heads: Tensor, num_positions: int) -> Tensor:
    return _index(heads, num_positions) + 1


def one_index_a_window(heads: Tensor, num_positions: int) -> Tensor:
    return _index(heads, 1).expand(-1, num_positions)


def seeing_other_drafts(logits: Logits, sampling: BatchSampling, index: Tensor, context: Context | None) -> Logits:
    others = context and context._replace(drafted=(context.drafted + 1) % logits.shape[-1])
    return constrained(logits, sampling, index, others)


def alike_in_rows(seeds: Tensor, index: Tensor, vocab_size: int, stream: int = TARGET) -> Tensor:
    return _noise_bits(torch.zeros_like(seeds), index, vocab_size, stream)


def alike_in_indices(seeds: Tensor, index: Tensor, vocab_size: int, stream: int = TARGET) -> Tensor:
    return _noise_bits(seeds, torch.zeros_like(index), vocab_size, stream)


def alike_in_streams(seeds: Tensor, index: Tensor, vocab_size: int, stream: int = TARGET) -> Tensor:
    return _noise_bits(seeds, index, vocab_size)


@pytest.mark.parametrize(
    ("module", "name", "mistake", "test"),
    [
        (TokenDrafting, "_draw", raw_draft_probs, partial(model_rounds, TOP_K)),
        (verification, "_next_weights", no_bonus, drawn_exactly),
        (verification, "_next_weights", no_bonus, certain_exactly),
        (verification, "_next_weights", no_bonus, rejection_draws),
        (verification, "residual", no_residual, drawn_exactly),
        (verification, "residual", no_residual, certain_exactly),
        (verification, "residual", no_residual, rejection_draws),
        (verification, "residual", unclamped_residual, drawn_exactly),
        (verification, "residual", softmax_residual, drawn_exactly),
        (verification, "_at", one_place_late, drawn_exactly),
        (verification, "stands", without_q, drawn_exactly),
        (test_rejection, "stands", not_strictly, test_rejection.test_a_token_without_mass_falls_whatever_the_number),
        (verification, "_length_of_run", with_padding, test_rejection.test_padding_is_not_accepted),
        (speculative, "_index", index_early, rejection_engine),
        (speculative, "_index", index_early, partial(coupled_tokens, SAMPLED, 11)),
        (speculative, "_index", index_late, partial(coupled_tokens, SAMPLED, 11)),
        (speculative, "_index", one_index_a_window, partial(coupled_tokens, SAMPLED, 11)),
        *((speculative, "constrained", seeing_other_drafts, partial(certain_rounds, options)) for options in SEEING),
        (speculative, "constrained", seeing_other_drafts, partial(model_rounds, PENALISED)),
        (speculative, "constrained", seeing_other_drafts, partial(coupled_tokens, test_coupled.PENALISED, 11)),
        (noise, "noise_bits", alike_in_rows, rejection_draws),
        (noise, "noise_bits", alike_in_indices, coupled_draws),
        (noise, "noise_bits", alike_in_streams, rejection_draws),
    ],
)
def test_a_mistake_is_caught(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, mistake: Callable[..., Any], test: Callable[[], None]
) -> None:
    monkeypatch.setattr(module, name, mistake)
    with pytest.raises(AssertionError):
        test()
