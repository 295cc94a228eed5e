"""What the engine knows of a model: its head, masks, EOS ids and context."""

import pytest
import torch

from schemas.errors import InvalidJob
from tests.engine.conftest import (
    CONTEXT_LENGTH,
    VOCAB_SIZE,
    endings,
    make_engine,
    make_requests,
    reference,
    tiny_model,
    tiny_target,
    with_eos,
)
from workers.engine.cache import KVShape, ProbeCache
from workers.engine.masks import MaskBuilder
from workers.engine.target import Target

pytestmark = pytest.mark.engine

REQUESTS = make_requests(5, seed=17)
SCALED = ("granite", "gemma2")
SLIDING = ("mistral", "gemma2", "gemma3_text")


@pytest.mark.parametrize("family", sorted({*SCALED, *SLIDING, "qwen3", "falcon"}))
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_models_with_scaled_heads_and_sliding_windows_equal_the_reference(family: str, attention: str) -> None:
    target = tiny_target(family, attention)
    assert endings(list(make_engine(target).generate(REQUESTS))) == reference(target, REQUESTS)


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "opt", "gemma", "gpt2", *SCALED])
def test_logits_are_the_models_own(family: str) -> None:
    target = tiny_target(family)
    input_ids = torch.arange(12).view(2, 6)
    positions = torch.arange(6).expand(2, 6)
    cache, masks = ProbeCache(), target.attention_masks(positions, 6)
    with torch.inference_mode():
        expected = target.model(input_ids=input_ids).logits
        torch.testing.assert_close(target.logits(input_ids, positions, masks, cache), expected)
        last = target.logits(input_ids, positions, masks, cache, at=torch.tensor([5, 2]))
    torch.testing.assert_close(last, torch.stack([expected[0, 5:6], expected[1, 2:3]]))


@pytest.mark.parametrize("family", SCALED)
def test_a_head_that_scales_its_logits_is_not_run_alone(family: str) -> None:
    assert not tiny_target(family)._head_is_apart
    assert tiny_target("llama")._head_is_apart


def test_key_and_value_shapes_are_measured() -> None:
    shapes = tiny_target("gemma").kv_shapes
    assert shapes == dict.fromkeys((0, 1), KVShape(2, 16, 16, torch.float32))


def test_eos_ids_of_both_configs_count() -> None:
    model = tiny_model("llama", eos_token_id=7)
    model.generation_config.eos_token_id = [3, 5]
    assert Target(model).eos_token_ids == {3, 5, 7}
    assert with_eos("llama", 4).eos_token_ids == {4}
    assert tiny_target("llama").eos_token_ids == frozenset()


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
def test_the_context_and_vocabulary_are_the_configs(family: str) -> None:
    target = tiny_target(family)
    assert (target.context_length, target.vocab_size) == (CONTEXT_LENGTH, VOCAB_SIZE)
    assert Target(tiny_model(family), context_length=50).context_length == 50


def test_a_config_without_a_context_length_is_refused() -> None:
    model = tiny_model("llama")
    model.config.max_position_embeddings = 0
    with pytest.raises(InvalidJob, match="context length"):
        Target(model)


def test_masks_show_no_position_after_the_query() -> None:
    sees = MaskBuilder(tiny_target("llama").config, torch.float32)(torch.tensor([[2, 3], [0, 1]]), 4)
    assert isinstance(sees, torch.Tensor)
    assert sees.int().tolist() == [[[[1, 1, 1, 0], [1, 1, 1, 1]]], [[[1, 0, 0, 0], [1, 1, 0, 0]]]]


def test_eager_masks_are_added_so_they_are_floats() -> None:
    mask = MaskBuilder(tiny_target("llama", "eager").config, torch.float32)(torch.tensor([[1]]), 3)
    assert isinstance(mask, torch.Tensor)
    assert mask.tolist() == [[[[0, 0, torch.finfo(torch.float32).min]]]]


def test_sliding_layers_see_their_window_only() -> None:
    masks = MaskBuilder(tiny_target("gemma2").config, torch.float32)(torch.tensor([[9]]), 10)
    assert isinstance(masks, dict)
    assert (masks["full_attention"] == 0).sum() == 10
    assert (masks["sliding_attention"] == 0).flatten().tolist() == [False, False] + [True] * 8
