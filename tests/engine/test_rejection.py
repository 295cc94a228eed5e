"""Rejection sampling commits what the target alone would draw, whatever is drafted: exactly, and in many draws."""

from typing import Any

import pytest
import torch

from schemas.generation import Request
from tests.engine.distributions import LEAST_P_VALUE, p_value, random_tables, row_seeds, say
from tests.engine.engine_draws import PROMPT, engine_p_value, tiny
from tests.engine.enumeration import certain_draft_error, random_conditionals, sampled_draft_error
from tests.engine.whole_rounds import EveryDraft, fixed_draft_error, model_draft_error
from workers.engine.sampling import Probabilities
from workers.engine.verification import accept_rejection, residual, stands

pytestmark = pytest.mark.engine

BOUND = 1e-6  # of total variation
OPTIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.5, "top_k": 2},
    {"temperature": 1.5, "top_p": 0.8},
    {"temperature": 1.0, "min_p": 0.2},
]
CONSTRAINTS: list[dict[str, Any]] = [
    {"temperature": 1.0, "repetition_penalty": 1.7},
    {"temperature": 1.0, "presence_penalty": 0.8, "frequency_penalty": 0.6, "top_k": 2},
    {"temperature": 1.0, "logit_bias": ((1, 1.5),), "bad_words": ((2, 1), (0,)), "top_p": 0.9},
    {"temperature": 1.0, "min_new_tokens": 3, "stop_token_ids": (2,)},
    {"repetition_penalty": 1.7, "min_new_tokens": 3, "stop_token_ids": (1,)},
]


def every_draft(options: dict[str, Any], others: dict[str, Any], k: int = 2) -> EveryDraft:
    """Rows that can use k drafted tokens and rows at whose end one fits less, in a batch with rows of other options."""
    lengths = ((options, k + 2), (options, k + 1), (others, k + 2))
    return EveryDraft(tiny(vocab_size=3), [Request(0, PROMPT, length, 0, **asked) for asked, length in lengths], k)


@pytest.mark.parametrize("draft", OPTIONS)
@pytest.mark.parametrize("target", OPTIONS)
def test_any_draft_that_is_drawn_leaves_the_targets_distribution(
    target: dict[str, Any], draft: dict[str, Any], vocab_size: int = 4, k: int = 2
) -> None:
    p = random_conditionals(target, vocab_size, k + 1, seed=1)
    q = random_conditionals(draft, vocab_size, k, seed=2)
    assert max(sampled_draft_error(p, q, num_drafted) for num_drafted in range(k + 1)) < BOUND


@pytest.mark.parametrize(("vocab_size", "k"), [(5, 0), (5, 1), (4, 2)])
@pytest.mark.parametrize("target", OPTIONS)
def test_each_draft_that_is_certain_leaves_the_targets_distribution(
    target: dict[str, Any], vocab_size: int, k: int
) -> None:
    p = random_conditionals(target, vocab_size, k + 1, seed=3)
    assert max(certain_draft_error(p, num_drafted) for num_drafted in range(k + 1)) < BOUND


def test_a_draft_of_three_tokens_leaves_the_targets_distribution() -> None:
    test_any_draft_that_is_drawn_leaves_the_targets_distribution(OPTIONS[1], OPTIONS[2], vocab_size=3, k=3)


def test_a_draft_without_any_of_the_targets_tokens_leaves_its_distribution() -> None:
    p = [torch.tensor([0.5, 0.5, 0.0, 0.0]), torch.tensor([0.1, 0.2, 0.3, 0.4]).expand(4, 4)]
    assert sampled_draft_error(p, [torch.tensor([0.0, 0.0, 0.5, 0.5])], 1) < BOUND


@pytest.mark.parametrize("options", [*OPTIONS, *CONSTRAINTS])
def test_a_round_with_a_model_draft_leaves_the_targets_distribution(options: dict[str, Any]) -> None:
    assert model_draft_error(every_draft(options, others={}), tiny("qwen2", 3)) < BOUND


@pytest.mark.parametrize("draft_temperature", [0.0, 0.4])
@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[2], CONSTRAINTS[0]])
def test_a_drafts_own_temperature_leaves_the_targets_distribution(
    options: dict[str, Any], draft_temperature: float
) -> None:
    every = every_draft(options, others=CONSTRAINTS[1])
    assert model_draft_error(every, tiny("qwen2", 3), draft_temperature) < BOUND


def test_a_draft_of_a_padded_vocabulary_leaves_the_targets_distribution() -> None:
    assert model_draft_error(every_draft(OPTIONS[1], others={}), tiny("qwen2", 7)) < BOUND


@pytest.mark.parametrize("options", [*OPTIONS, *CONSTRAINTS])
def test_a_round_with_any_certain_draft_leaves_the_targets_distribution(options: dict[str, Any]) -> None:
    assert fixed_draft_error(every_draft(options, others={"temperature": 1.0})) < BOUND


def test_a_token_without_mass_falls_whatever_the_number() -> None:
    u, drafted, p = torch.zeros(1, 1), torch.tensor([[1]]), torch.tensor([[[1.0, 0.0]]])
    assert not stands(u, drafted, p, None).any()
    assert not stands(u, drafted, p, torch.tensor([[[0.5, 0.5]]])).any()


@pytest.mark.parametrize("q", [1.0, 1 / 3, 1e-30])
def test_a_token_as_likely_as_in_the_draft_stands_whatever_the_number(q: float) -> None:
    probs = torch.tensor([[[q, 1 - q]]])
    assert stands(torch.tensor([[1 - 2**-24]]), torch.tensor([[0]]), probs, probs).all()


def test_equal_distributions_leave_no_residual_and_then_it_is_the_targets_own() -> None:
    probs = torch.tensor([[0.25, 0.75, 0.0], [0.5, 0.25, 0.25]])
    draft = torch.tensor([[0.25, 0.75, 0.0], [0.25, 0.5, 0.25]])
    assert torch.equal(residual(probs, draft), torch.tensor([[0.25, 0.75, 0.0], [0.25, 0.0, 0.0]]))


def test_padding_is_not_accepted() -> None:
    target_probs, draft_probs = Probabilities(torch.full((2, 4, 2), 0.5)), Probabilities(torch.full((2, 3, 2), 0.5))
    index, seeds, drafted = torch.arange(4).expand(2, -1), torch.zeros(2, 2, dtype=torch.int32), torch.zeros(2, 3)
    accepted = accept_rejection(drafted.long(), torch.tensor([0, 2]), target_probs, draft_probs, seeds, index)
    assert accepted.num_accepted.tolist() == [0, 2]


@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize(
    ("options", "draft_options"),
    [
        ({"temperature": 1.0}, {"temperature": 0.7}),
        ({"temperature": 1.0, "top_k": 4}, {"temperature": 1.0}),
        ({"temperature": 1.2, "top_p": 0.8}, {"temperature": 1.0, "top_k": 3}),
    ],
)
def test_many_draws_are_the_targets(options: dict[str, Any], draft_options: dict[str, Any], k: int) -> None:
    tables = random_tables(8, options, draft_options)
    said = say(tables, row_seeds(100_000), num_tokens=5, k=k, verification="rejection")
    assert len(said.bonus) > 10_000 or not k
    assert p_value(tables, said) > LEAST_P_VALUE


@pytest.mark.parametrize("draft", ["model", "counting"])
def test_what_the_engine_draws_is_the_targets(draft: str) -> None:
    assert engine_p_value(2000, draft, "rejection") > LEAST_P_VALUE
