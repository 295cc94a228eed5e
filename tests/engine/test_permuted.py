"""A permuted tokenizer and model say what the originals say, in other ids."""

from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from tests.demo import demo_model, generate_alone, load_reference
from tests.engine.conftest import VOCAB_SIZE, make_requests, tiny_model
from tests.engine.permuted import permuted_model, permuted_tokenizer
from tests.engine.small_tokenizers import CORPUS, SPECIAL, byte_level, sentencepiece

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
def test_a_permuted_tokenizer_cuts_text_alike(make: Any) -> None:
    permuted, permutation = permuted_tokenizer(make(), 2)
    assert sorted(permutation) == list(range(len(make())))
    assert permutation != sorted(permutation)
    for text in (*CORPUS[:5], f"a{SPECIAL[3]} b{SPECIAL[1]}"):
        ids = make()(text).input_ids
        assert permuted(text).input_ids == [permutation[index] for index in ids]
        assert permuted.decode(permuted(text).input_ids) == make().decode(ids)
    assert permuted.eos_token_id == permutation[make().eos_token_id]
    assert set(permuted.all_special_ids) == {permutation[index] for index in make().all_special_ids}


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_permuted_model_has_the_same_logits_in_other_places(is_tied: bool) -> None:
    model = tiny_model("llama", tie_word_embeddings=is_tied, eos_token_id=3)
    model.generation_config.eos_token_id = [3, 7]
    permutation = list(torch.randperm(VOCAB_SIZE - 4, generator=torch.Generator().manual_seed(0)).tolist())
    permuted = permuted_model(model, permutation)
    places = torch.tensor([*permutation, *range(VOCAB_SIZE - 4, VOCAB_SIZE)])
    ids = torch.tensor([make_requests(1)[0].prompt_token_ids])
    with torch.inference_mode():
        assert torch.equal(permuted(places[ids]).logits[..., places], model(ids).logits)
    assert permuted.config.eos_token_id == permutation[3]
    assert permuted.generation_config.eos_token_id == [permutation[3], permutation[7]]
    assert model.generation_config.eos_token_id == [3, 7]


@pytest.mark.smollm
def test_the_permuted_demo_model_says_the_same() -> None:
    tokenizer, model = AutoTokenizer.from_pretrained(demo_model()), load_reference()
    permuted, permutation = permuted_tokenizer(tokenizer, 1)
    request = make_requests(1, max_new_tokens=8)[0]
    alike = type(request)(0, tuple(permutation[index] for index in request.prompt_token_ids), 8, seed=request.seed)
    said = generate_alone(model, request)
    assert generate_alone(permuted_model(model, permutation), alike) == [permutation[index] for index in said]
    assert permuted.decode([permutation[index] for index in said]) == tokenizer.decode(said)
