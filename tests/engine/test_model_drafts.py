"""Draft models: their caches follow the rows, and rows that they cannot draft for take part without a draft."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from schemas.errors import InvalidJob
from schemas.generation import Completion, Request
from tests.engine.conftest import VOCAB_SIZE, endings, make_engine, make_requests, reference, tiny_model, tiny_target
from tests.engine.every_draft import draft_model, engine_with, noisy_copy, run, target
from tests.engine.tiny_folder import tiny_tokenizer
from workers.engine.drafts.early_exit import early_exit
from workers.engine.target import Target

pytestmark = pytest.mark.engine

REQUESTS = make_requests(8, 16, seed=61)


def sums(completions: Sequence[Completion]) -> tuple[int, int]:
    """(drafted, accepted)"""
    statistics = [completion.statistics for completion in completions]
    return sum(s.num_draft_tokens for s in statistics), sum(s.num_accepted_draft_tokens for s in statistics)


class Alternating:
    """A controller that drafts now and then, so that a draft's cache lags by any number of tokens."""

    def __init__(self, pattern: Sequence[int]) -> None:
        self._pattern, self._turn = pattern, 0

    def ask(self, source: str, limits: Sequence[int], is_free: bool) -> int:
        self._turn += 1
        return self._pattern[self._turn % len(self._pattern)]

    def start(self, slot: int) -> None:
        return

    def finish(self, slot: int) -> None:
        return

    def observe(self, facts: Any) -> None:
        return


@pytest.mark.parametrize("pattern", [(3, 0), (0, 0, 0, 2), (1, 3, 0, 0, 3), (0,) * 19 + (3,)])
@pytest.mark.parametrize("source", ["same model", "other tokenizer by text", "other tokenizer by tokens", "early exit"])
def test_a_draft_catches_up_with_rounds_that_drafted_nothing(source: str, pattern: tuple[int, ...]) -> None:
    own, requests = target(), make_requests(5, 40, seed=62)
    options = {"draft_lengths": (0, 1, 2, 3)}
    engine = engine_with(source, own, requests, {}, **options)
    engine._controller, engine._is_warm = Alternating(pattern), True  # type: ignore[assignment]
    completions = list(engine.generate(requests))
    assert endings(completions) == reference(own, requests)
    drafted, accepted = sums(completions)
    assert drafted > 0
    if source == "same model":
        assert accepted == drafted, "the draft's cache does not hold what the target's does"


@pytest.mark.parametrize("vocab_size", [VOCAB_SIZE, 40, 64])
def test_padded_vocabularies_of_unequal_size_are_fine(vocab_size: int) -> None:
    """The sizes that models of one tokenizer pad their embeddings to differ; the target's may be shorter or longer."""
    own = Target(tiny_model("llama"), None)
    smaller = tiny_model("llama", vocab_size=vocab_size)
    shared = min(VOCAB_SIZE, vocab_size)
    with torch.no_grad():
        smaller.load_state_dict(
            {
                name: torch.cat([weight[:shared], smaller.state_dict()[name][shared:]])
                if len(weight) == VOCAB_SIZE
                else weight
                for name, weight in own.model.state_dict().items()
            }
        )
    requests = [r for r in make_requests(9, 16, seed=63) if max(r.prompt_token_ids) < 40]
    for sampling in ({}, {"temperature": 1.0}):
        asked = [Request(r.row_index, r.prompt_token_ids, 16, r.seed, **sampling) for r in requests]
        completions = list(make_engine(own, draft="model", draft_model=Target(smaller)).generate(asked))
        assert endings(completions) == reference(own, asked)
        drafted, accepted = sums(completions)
        assert accepted > (0.95 if vocab_size >= VOCAB_SIZE else 0.0) * drafted


@pytest.mark.parametrize("verification", ["coupled", "rejection"])
def test_a_row_longer_than_the_drafts_context_takes_part_without_a_draft(verification: str) -> None:
    own, short = tiny_target("llama"), Target(tiny_model("llama", max_position_embeddings=24))
    requests = make_requests(8, 20, seed=64)
    assert any(len(request.prompt_token_ids) > 24 for request in requests)
    engine = make_engine(own, draft="model", draft_model=short, verification=verification)
    completions = {c.row_index: c for c in engine.generate(requests)}
    assert endings(list(completions.values())) == reference(own, requests)
    for request in requests:
        statistics = completions[request.row_index].statistics
        if len(request.prompt_token_ids) > 24:
            assert statistics.num_draft_tokens == 0 and statistics.draft_acceptance_rate is None
        elif len(request.prompt_token_ids) < 15:
            assert statistics.num_draft_tokens > 0


def test_the_draft_length_that_is_asked_for_is_the_one_that_is_used() -> None:
    for k in (1, 2, 5):
        completions = run("noisy copy", target(), REQUESTS, draft_lengths=(k,))
        assert all(len(c.statistics.acceptance_histogram) == k + 1 for c in completions)
        drafted, _ = sums(completions)
        num_spec_steps = sum(c.statistics.num_spec_steps for c in completions)
        assert k * num_spec_steps * 0.6 < drafted <= k * num_spec_steps


def test_a_k_of_zero_runs_no_forward_of_the_draft() -> None:
    engine = engine_with("same model", target(), REQUESTS, {}, draft_lengths=(0,))
    completions = list(engine.generate(REQUESTS))
    assert sums(completions) == (0, 0)
    assert engine._draft._rows.log.graph_keys.total() == 0  # type: ignore[attr-defined]


def test_the_drafts_temperature_is_its_own() -> None:
    """Greedy drafts of the target itself are the mode of what it draws from, and not what it draws."""
    requests = make_requests(8, 16, seed=65, temperature=1.5)
    for verification in ("coupled", "rejection"):
        rates = {}
        for temperature in (None, 0.0, 1.5):
            completions = run(
                "same model", target(), requests, draft_temperature=temperature, verification=verification
            )
            drafted, accepted = sums(completions)
            rates[temperature] = accepted / drafted
        assert rates[None] == rates[1.5] > 0.95
        assert rates[0.0] < 0.9


def test_early_exit_shares_weights_and_cache_with_the_target() -> None:
    own = tiny_target("llama")
    exit_model = early_exit(own, 1)
    theirs = {id(parameter) for parameter in own.model.parameters()}
    assert {id(parameter) for parameter in exit_model.model.parameters()} <= theirs
    assert set(exit_model.kv_shapes) == {0} and set(own.kv_shapes) == {0, 1}
    assert len(own.model.model.layers) == 2, "the target's own layers are untouched"
    engine = make_engine(own, draft="early-exit", exit_layer=1)
    list(engine.generate(REQUESTS))
    assert engine._draft._rows._runner.cache is engine._runner.cache  # type: ignore[attr-defined, union-attr]


def test_an_exit_layer_that_the_target_does_not_have_is_refused() -> None:
    for layer in (2, 30):
        with pytest.raises(InvalidJob, match=f"--exit-layer {layer}: the model has 2 layers"):
            make_engine(tiny_target("llama"), draft="early-exit", exit_layer=layer)


def test_an_early_exit_of_all_but_nothing_is_accepted() -> None:
    """With a last layer that adds nothing, the exit before it says what the target says."""
    model = tiny_model("llama")
    with torch.no_grad():
        model.model.layers[1].self_attn.o_proj.weight.zero_()
        model.model.layers[1].mlp.down_proj.weight.zero_()
    own = Target(model, tiny_tokenizer())
    completions = list(make_engine(own, draft="early-exit", exit_layer=1).generate(REQUESTS))
    drafted, accepted = sums(completions)
    assert accepted == drafted > 0
    assert endings(completions) == reference(own, REQUESTS)


def test_drafts_of_another_model_are_of_use() -> None:
    drafted, accepted = sums(run("noisy copy", target(), REQUESTS))
    assert 0 < accepted < drafted
    assert noisy_copy(target().model) is not target().model and draft_model("noisy copy") is not None


@pytest.mark.parametrize("source", ["same model", "other tokenizer by text", "early exit", "suffix"])
def test_a_run_left_halfway_leaves_nothing_behind(source: str) -> None:
    own = target()
    engine = engine_with(source, own, REQUESTS, {})
    next(engine.generate(REQUESTS))
    assert endings(list(engine.generate(REQUESTS))) == reference(own, REQUESTS)
    longer = make_requests(4, 40, seed=66)
    assert endings(list(engine.generate(longer))) == reference(own, longer)
