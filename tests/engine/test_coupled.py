"""Coupled verification commits plain decoding's own tokens, whatever is drafted, and accepts nearly all that it may."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from schemas.generation import Request
from tests.engine.conftest import endings, make_engine, reference
from tests.engine.distributions import LEAST_P_VALUE, p_value, random_tables, row_seeds, say
from tests.engine.engine_draws import PROMPT, engine_p_value, tiny
from tests.engine.enumeration import after_each, all_sequences, random_conditionals, total_variation
from tests.engine.whole_rounds import WIDE_BUCKETS, FixedDraft
from workers.engine.noise import exponential_noise
from workers.engine.sampling import Probabilities, race
from workers.engine.verification import accept_coupled

pytestmark = pytest.mark.engine

K, VOCAB_SIZE = 3, 4
NUM_PAIRS = 4000
PENALISED: dict[str, Any] = {"temperature": 1.2, "presence_penalty": 0.8, "frequency_penalty": 0.6}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0},
    {"temperature": 1.5, "top_k": 3, "min_p": 0.05},
    PENALISED,
    {"temperature": 1.0, "repetition_penalty": 1.7, "bad_words": ((2, 1),)},
    {"repetition_penalty": 1.7, "min_new_tokens": 4, "stop_token_ids": (1,)},
]
DRAWN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"temperature": 1.0, "top_k": 5}, {"temperature": 0.7}),
    ({"temperature": 1.2, "top_p": 0.8}, {"temperature": 1.0}),
]
DRAFTS = all_sequences(VOCAB_SIZE, K)


def requests(options: dict[str, Any], seed: int) -> list[Request]:
    """The same row for each draft there is; 9 tokens are three rounds or more, and the last ones are cut short."""
    one = Request(0, PROMPT, max_new_tokens=9, seed=seed, **options)
    return [replace(one, row_index=row) for row in range(len(DRAFTS))]


def plain_tokens(conditionals: list[Tensor], noise: Tensor) -> list[int]:
    """One token after another. noise: (1, T, V)."""
    tokens: list[int] = []
    for place, probs in enumerate(conditionals):
        tokens.append(int(race(probs[tuple(tokens)].view(1, 1, -1), noise[:, place : place + 1])))
    return tokens


def softmax_pair(vocab_size: int, spread: float, distance: float, seed: int) -> tuple[Probabilities, Probabilities]:
    first, second = torch.randn(2, 1, 1, vocab_size, generator=torch.Generator().manual_seed(seed))
    return Probabilities((first * spread).softmax(-1)), Probabilities((first * spread + second * distance).softmax(-1))


def acceptance(p: Probabilities, q: Probabilities) -> float:
    """How often a token drawn from q stands, for a target of p."""
    noise = exponential_noise(row_seeds(NUM_PAIRS), torch.zeros(NUM_PAIRS, 1).long(), p.shape[-1])
    accepted = accept_coupled(race(q, noise), torch.ones(NUM_PAIRS).long(), race(p, noise).expand(-1, 2))
    return float(accepted.num_accepted.float().mean())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"temperature": 0.7, "top_k": 2}])
def test_every_draft_is_verified_to_plain_decodings_tokens(options: dict[str, Any], seed: int) -> None:
    conditionals = random_conditionals(options, VOCAB_SIZE, K + 1, seed)
    noise = exponential_noise(row_seeds(1), torch.arange(K + 1)[None] + seed, VOCAB_SIZE)
    plain, windows = plain_tokens(conditionals, noise), after_each(conditionals, DRAFTS)
    for num_drafted in range(K + 1):
        counts = torch.full((len(DRAFTS),), num_drafted)
        accepted = accept_coupled(DRAFTS, counts, race(windows, noise.expand_as(windows)))
        rows = zip(DRAFTS.tolist(), accepted.num_accepted.tolist(), accepted.tokens.tolist(), strict=True)
        for drafted, num_accepted, tokens in rows:
            agreeing = next((t for t in range(num_drafted) if drafted[t] != plain[t]), num_drafted)
            assert (num_accepted, tokens[: num_accepted + 1]) == (agreeing, plain[: agreeing + 1])


@pytest.mark.parametrize("seed", [11, 12])
@pytest.mark.parametrize("options", OPTIONS)
def test_every_draft_ends_in_the_references_tokens(options: dict[str, Any], seed: int) -> None:
    target, rows = tiny(vocab_size=VOCAB_SIZE), requests(options, seed)
    draft = FixedDraft(DRAFTS.tolist())
    engine = make_engine(target, len(rows), k=K, draft_source=draft, policy=WIDE_BUCKETS)
    completions = list(engine.generate(rows))
    expected = reference(target, rows[:1])[0]
    assert set(endings(completions).values()) == {expected}
    assert len({completion.statistics.num_target_steps for completion in completions}) > 1


@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize(("options", "draft_options"), DRAWN)
def test_many_draws_are_the_targets(options: dict[str, Any], draft_options: dict[str, Any], k: int) -> None:
    tables = random_tables(8, options, draft_options)
    said = say(tables, row_seeds(100_000), num_tokens=5, k=k, verification="coupled")
    assert len(said.bonus) > 10_000 or not k
    assert p_value(tables, said) > LEAST_P_VALUE


def test_what_the_engine_draws_is_the_targets() -> None:
    assert engine_p_value(2000, "model", "coupled") > LEAST_P_VALUE


@pytest.mark.parametrize("vocab_size", [8, 64, 1000])
@pytest.mark.parametrize(("spread", "distance"), [(1.0, 0.1), (1.0, 0.5), (2.0, 1.0), (3.0, 1.0), (3.0, 3.0)])
def test_acceptance_is_near_one_minus_total_variation(vocab_size: int, spread: float, distance: float) -> None:
    p, q = softmax_pair(vocab_size, spread, distance, seed=vocab_size)
    rate, best = acceptance(p, q), 1 - total_variation(p, q)
    assert best - 0.1 < rate < best + 0.03
    assert rate > float((p * q).sum()) + 0.02, "independent draws agree as often"


@pytest.mark.parametrize("seed", range(5))
def test_acceptance_is_that_of_an_exponential_race(seed: int) -> None:
    p, q = softmax_pair(16, spread=2.0, distance=1.0, seed=seed)
    ratios = torch.maximum(p[..., None, :] / p[..., None], q[..., None, :] / q[..., None])
    expected = float((1 / ratios.sum(-1)).sum())
    assert abs(acceptance(p, q) - expected) < 4 * (expected * (1 - expected) / NUM_PAIRS) ** 0.5
