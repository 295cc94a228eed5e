"""Which tokens two tokenizers share, whatever way each writes them."""

import copy
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests.demo import demo_model
from tests.engine.permuted import permuted_tokenizer
from tests.engine.small_tokenizers import byte_level, nfkc, sentencepiece
from workers.engine.drafts.token_bytes import is_byte_token, token_bytes
from workers.engine.drafts.vocabulary import NO_TOKEN, carried_tokens, same_tokenizer, shared_vocabulary

pytestmark = pytest.mark.engine


def changed(**parts: Any) -> PreTrainedTokenizerFast:
    """The byte-level tokenizer with other parts in its pipeline."""
    tokenizer = copy.deepcopy(byte_level())
    for name, part in parts.items():
        setattr(tokenizer.backend_tokenizer, name, part)
    return tokenizer


def test_a_tokenizer_is_the_same_as_its_copy_and_as_itself_read_from_disk(tmp_path: Any) -> None:
    byte_level().save_pretrained(tmp_path)
    assert same_tokenizer(byte_level(), copy.deepcopy(byte_level()))
    assert same_tokenizer(byte_level(), AutoTokenizer.from_pretrained(tmp_path))


def test_another_way_to_the_same_vocabulary_is_another_tokenizer() -> None:
    assert not same_tokenizer(byte_level(), changed(normalizer=normalizers.NFC()))
    assert not same_tokenizer(byte_level(), changed(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)))
    model = copy.deepcopy(byte_level().backend_tokenizer.model)
    model.ignore_merges = not model.ignore_merges
    assert not same_tokenizer(byte_level(), changed(model=model))


def test_a_token_that_is_special_in_one_alone_makes_another_tokenizer() -> None:
    plain, special = copy.deepcopy(byte_level()), copy.deepcopy(byte_level())
    plain.add_tokens([AddedToken("<tool>", special=False)])
    special.add_tokens([AddedToken("<tool>", special=True)], special_tokens=True)
    assert plain.get_vocab() == special.get_vocab()
    assert not same_tokenizer(plain, special)


def test_an_added_token_or_another_numbering_makes_another_tokenizer() -> None:
    more = copy.deepcopy(byte_level())
    more.add_tokens([AddedToken("<tool>")])
    permuted, _ = permuted_tokenizer(byte_level(), 0)
    assert not same_tokenizer(byte_level(), more)
    assert not same_tokenizer(byte_level(), permuted)
    assert not same_tokenizer(byte_level(), sentencepiece())


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
def test_the_intersection_with_a_permuted_copy_is_the_permutation(make: Any) -> None:
    permuted, permutation = permuted_tokenizer(make(), 3)
    shared = shared_vocabulary(make(), permuted)
    pieces = token_bytes(make())
    for content, index in make().get_vocab().items():
        is_second = is_byte_token(content) and pieces.count(pieces[index]) > 1
        assert shared[index] == (NO_TOKEN if is_second else permutation[index])


@pytest.mark.parametrize(
    ("target", "draft"), [(byte_level(), sentencepiece()), (sentencepiece(), byte_level()), (byte_level(), nfkc())]
)
def test_shared_tokens_stand_for_the_same_bytes_and_for_one_another_alone(target: Any, draft: Any) -> None:
    shared = shared_vocabulary(target, draft)
    ours, theirs = token_bytes(target), token_bytes(draft)
    found = np.flatnonzero(shared != NO_TOKEN)
    assert all(ours[index] == theirs[shared[index]] for index in found)
    assert len(set(shared[found])) == len(found)
    assert {ours[index] for index in found} - {None} == (set(ours) & set(theirs)) - {None}


def test_spaces_bytes_and_characters_are_matched_across_notations() -> None:
    target, draft = byte_level(), sentencepiece()
    shared = shared_vocabulary(target, draft)
    pairs = {"Ġthe": "▁the", "Ċ": "<0x0A>", "â": "<0xE2>", "t": "t", "!": "!", "Ã": "<0xC3>", "ã": "<0xE3>"}
    assert {
        content: draft.convert_ids_to_tokens(int(shared[target.convert_tokens_to_ids(content)])) for content in pairs
    } == pairs


def test_a_special_token_is_never_matched_to_text_that_looks_like_it() -> None:
    draft = byte_level(420, ("<unk>",), "<unk>")
    draft = copy.deepcopy(draft)
    draft.add_tokens([AddedToken("<s>", special=False)])
    shared = shared_vocabulary(byte_level(), draft)
    assert shared[byte_level().convert_tokens_to_ids("<s>")] == NO_TOKEN
    assert shared[byte_level().convert_tokens_to_ids("<unk>")] == draft.convert_tokens_to_ids("<unk>")


def test_eos_is_matched_to_eos_of_another_name_unless_its_own_name_is_there() -> None:
    eos, end = byte_level().eos_token_id, nfkc().eos_token_id
    assert carried_tokens(byte_level(), nfkc()) == {eos: end}
    assert shared_vocabulary(byte_level(), nfkc())[eos] == end
    separator = byte_level(420, ("<|sep|>", "</s>"), "<|sep|>")
    assert carried_tokens(byte_level(), separator)[eos] == separator.convert_tokens_to_ids("</s>")


def test_two_tokens_for_the_drafts_eos_leave_it_to_the_one_of_its_name() -> None:
    draft = byte_level(420, ("<|sep|>",), "<|sep|>")
    shared = shared_vocabulary(byte_level(), draft)
    assert carried_tokens(byte_level(), draft)[byte_level().eos_token_id] == draft.eos_token_id
    assert shared[byte_level().convert_tokens_to_ids("<|sep|>")] == draft.eos_token_id
    assert shared[byte_level().eos_token_id] == NO_TOKEN


@pytest.mark.smollm
def test_the_demo_models_tokenizer_is_whole_in_its_permuted_copy() -> None:
    tokenizer = AutoTokenizer.from_pretrained(demo_model())
    permuted, permutation = permuted_tokenizer(tokenizer, 1)
    shared = shared_vocabulary(tokenizer, permuted)
    assert np.mean(shared == np.array(permutation)) == 1.0
    assert not same_tokenizer(tokenizer, permuted)
    assert same_tokenizer(tokenizer, AutoTokenizer.from_pretrained(demo_model()))
