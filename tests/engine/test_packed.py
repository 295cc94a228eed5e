import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.pytorch_utils import Conv1D

from tests.engine.conftest import tiny_model
from workers.engine.attention import GROUPED, attention_for, grouped_attention
from workers.engine.packed import PackedLinear, pack_linear_layers
from workers.engine.self_check import ragged_difference
from workers.engine.target import Target

pytestmark = pytest.mark.engine


def linear(num_in, num_out, bias=True):
    torch.manual_seed(0)
    return torch.nn.Linear(num_in, num_out, bias=bias)


@given(st.integers(1, 70), st.integers(1, 90), st.lists(st.integers(1, 9), min_size=1, max_size=2), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_packed_layer_computes_what_the_plain_one_does(num_in, num_out, shape, bias):
    layer = linear(num_in, num_out, bias)
    states = torch.randn(*shape, num_in)
    with torch.inference_mode():
        found = PackedLinear(layer.weight, layer.bias)(states)
        assert torch.allclose(found, layer(states), rtol=1e-4, atol=1e-5)


def test_a_packed_layer_takes_strided_states():
    layer = linear(24, 40)
    states = torch.randn(3, 5, 24).transpose(0, 1)
    assert torch.allclose(PackedLinear(layer.weight, layer.bias)(states), layer(states), atol=1e-5)


def test_a_packed_layer_gives_its_weight_back_bit_for_bit():
    layer = linear(33, 77)
    assert torch.equal(PackedLinear(layer.weight, layer.bias).weight, layer.weight)


def test_conv1d_of_gpt2_is_packed_the_right_way_round():
    torch.manual_seed(0)
    parent = torch.nn.Sequential(Conv1D(12, 7))
    states = torch.randn(2, 3, 7)
    expected = parent(states)
    assert pack_linear_layers(parent) == 1
    assert torch.allclose(parent(states), expected, atol=1e-5)


def test_subclasses_and_other_dtypes_are_left_alone():
    class Odd(torch.nn.Linear):
        pass

    parent = torch.nn.Sequential(Odd(4, 4), torch.nn.Linear(4, 4).double(), torch.nn.LayerNorm(4))
    before = list(parent)
    assert pack_linear_layers(parent) == 0
    assert list(parent) == before


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox", "gemma"])
def test_a_packed_model_has_the_logits_of_the_plain_one(family):
    model = tiny_model(family)
    token_ids = torch.arange(24).view(2, 12)
    with torch.inference_mode():
        expected = model(input_ids=token_ids).logits
        assert pack_linear_layers(model) > 2
        assert torch.allclose(model(input_ids=token_ids).logits, expected, rtol=1e-3, atol=1e-3)


def test_a_tied_embedding_stays_usable_when_the_head_is_packed():
    model = tiny_model("llama", tie_word_embeddings=True)
    embedding = model.get_input_embeddings().weight
    assert model.get_output_embeddings().weight is embedding
    pack_linear_layers(model)
    assert isinstance(model.get_output_embeddings(), PackedLinear)
    assert model.get_input_embeddings().weight is embedding
    assert torch.equal(model.get_output_embeddings().weight, embedding)


@given(
    num_rows=st.integers(1, 3),
    num_groups=st.integers(1, 3),
    num_shared=st.integers(1, 4),
    num_positions=st.integers(1, 5),
    kv_length=st.integers(1, 20),
    seed=st.integers(0, 999),
)
@settings(max_examples=60, deadline=None)
def test_grouped_attention_is_attention_over_repeated_keys(
    num_rows, num_groups, num_shared, num_positions, kv_length, seed
):
    torch.manual_seed(seed)
    query = torch.randn(num_rows, num_groups * num_shared, num_positions, 8)
    key, value = torch.randn(2, num_rows, num_groups, kv_length, 8).unbind()
    mask = torch.rand(num_rows, 1, num_positions, kv_length) < 0.6
    mask[..., 0] = True
    found, _ = grouped_attention(torch.nn.Identity(), query, key, value, mask, scaling=0.3)
    repeated = (states.repeat_interleave(num_shared, dim=1) for states in (key, value))
    expected = torch.nn.functional.scaled_dot_product_attention(query, *repeated, attn_mask=mask, scale=0.3)
    assert torch.allclose(found, expected.transpose(1, 2), atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma", "gpt2", "opt", "gpt_neox"])
def test_a_model_with_grouped_attention_has_the_logits_of_eager(family):
    token_ids = torch.arange(24).view(2, 12)
    eager, grouped = tiny_model(family, "eager"), tiny_model(family, GROUPED)
    with torch.inference_mode():
        assert torch.allclose(
            grouped(input_ids=token_ids).logits, eager(input_ids=token_ids).logits, rtol=1e-3, atol=1e-3
        )


def test_ragged_rows_with_grouped_attention_and_packed_layers_agree_with_whole_sequences():
    model = tiny_model("llama", GROUPED)
    pack_linear_layers(model)
    assert ragged_difference(Target(model)) < 1e-5


@pytest.mark.parametrize(("family", "attention"), [("llama", GROUPED), ("falcon", "sdpa"), ("gemma2", "eager")])
def test_attention_is_the_fastest_that_the_family_has(family, attention):
    config = transformers.AutoConfig.for_model(family)
    model_class = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    assert attention_for(model_class, config) == attention
