"""On a real model every draft source leaves its tokens alone, with real tokenizers on both sides."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import transformers

from schemas.generation import Completion, Request
from tests.demo import demo_model, demo_requests, load_reference
from tests.engine.permuted import permuted_model, permuted_tokenizer
from tests.second_tokenizer import fetch_second_tokenizer
from workers.devices import get_device
from workers.engine.drafts.vocabulary import same_tokenizer, shared_vocabulary
from workers.engine.engine import Engine
from workers.engine.models import load_target
from workers.engine.options import EngineOptions
from workers.engine.packed import pack_linear_layers
from workers.engine.target import Target

pytestmark = [pytest.mark.engine, pytest.mark.smollm]
ROWS = (9, 24, 50, 61)
NUM_TOKENS = 14


@pytest.fixture(scope="module")
def target() -> Target:
    return load_target(str(demo_model()), None, "float32", get_device("cpu"))


@pytest.fixture(scope="module")
def requests(target: Target) -> list[Request]:
    return demo_requests(target.tokenizer, ROWS, NUM_TOKENS, ignore_eos=True)


@pytest.fixture(scope="module")
def expected(target: Target, requests: list[Request]) -> dict[int, tuple[int, ...]]:
    return tokens_of(generate(target, requests, draft="none"))


@pytest.fixture(scope="module")
def twin(target: Target) -> Target:
    """The target itself with its vocabulary renumbered."""
    tokenizer, permutation = permuted_tokenizer(target.tokenizer, seed=5)
    model = permuted_model(load_reference(), permutation)
    pack_linear_layers(model)
    return Target(model, tokenizer)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """A small random model of another real tokenizer."""
    tokenizer = fetch_second_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    config = transformers.LlamaConfig(
        vocab_size=65024, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2
    )
    torch.manual_seed(0)
    return Target(transformers.LlamaForCausalLM(config), tokenizer)


def generate(
    target: Target, requests: Sequence[Request], draft_model: Target | None = None, **options: Any
) -> list[Completion]:
    options = {"batch_size": 2, "draft_lengths": (4,), **options}
    return list(Engine(target, get_device("cpu"), EngineOptions(**options), draft_model).generate(requests))


def tokens_of(completions: Sequence[Completion]) -> dict[int, tuple[int, ...]]:
    return {completion.row_index: completion.token_ids for completion in completions}


def acceptance(completions: Sequence[Completion]) -> float:
    statistics = [completion.statistics for completion in completions]
    return sum(s.num_accepted_draft_tokens for s in statistics) / sum(s.num_draft_tokens for s in statistics)


@pytest.mark.parametrize("options", [{"draft": "suffix"}, {"draft": "early-exit", "exit_layer": 6}, {"draft": "auto"}])
def test_sources_without_another_model_change_no_token(
    target: Target, requests: list[Request], expected: dict[int, tuple[int, ...]], options: dict[str, Any]
) -> None:
    assert tokens_of(generate(target, requests, **options)) == expected


@pytest.mark.parametrize("vocabulary", ["text", "intersection"])
def test_the_target_with_its_vocabulary_renumbered_is_accepted(
    target: Target, twin: Target, requests: list[Request], expected: dict[int, tuple[int, ...]], vocabulary: str
) -> None:
    assert not same_tokenizer(target.tokenizer, twin.tokenizer)
    completions = generate(target, requests, twin, draft="model", vocabulary=vocabulary)
    assert tokens_of(completions) == expected
    assert acceptance(completions) > 0.95


@pytest.mark.parametrize("vocabulary", ["text", "intersection"])
def test_a_draft_of_another_real_tokenizer_changes_no_token(
    target: Target, stranger: Target, requests: list[Request], expected: dict[int, tuple[int, ...]], vocabulary: str
) -> None:
    shared = (shared_vocabulary(target.tokenizer, stranger.tokenizer) >= 0).mean()
    assert 0.5 < shared < 0.9
    completions = generate(target, requests, stranger, draft="model", vocabulary=vocabulary)
    assert tokens_of(completions) == expected
    assert sum(completion.statistics.num_draft_tokens for completion in completions) > 0
