"""A row in another tokenizer's tokens says the row's text, and drafts come back as the target's own tokens."""

import contextlib
import functools
import unicodedata
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tests.demo import demo_model
from tests.engine.permuted import permuted_tokenizer
from tests.engine.small_tokenizers import CORPUS, byte_level, nfkc, sentencepiece
from workers.engine.drafts.plain_text import PlainEncoder
from workers.engine.drafts.token_bytes import token_bytes
from workers.engine.drafts.translation import Bridge

pytestmark = pytest.mark.engine

KINDS = {
    "byte-level": byte_level,
    "another byte-level": lambda: byte_level(300),
    "sentencepiece": sentencepiece,
    "metaspace": lambda: sentencepiece(False),
}
SENTENCES = st.lists(st.sampled_from(CORPUS[:5]), min_size=1, max_size=3).map("".join)
UNICODE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="�▁"), max_size=40)
REPEATED = st.tuples(st.sampled_from(["a", "the ", " ", "\n", "🙂", "é", "ab"]), st.integers(1, 60)).map(
    lambda pair: pair[0] * pair[1]
)
# A row begins with a letter: metaspace has the same tokens for a text with a first space and without.
TEXTS = st.lists(SENTENCES | UNICODE | REPEATED, max_size=3).map(lambda parts: "a" + "".join(parts))
kinds = st.sampled_from(sorted(KINDS))


@functools.cache
def bridge(target: str, draft: str) -> Bridge:
    return Bridge(KINDS[target](), KINDS[draft]())


def encode(kind: str, text: str) -> list[int]:
    """As the tokenizer does it by itself, without special tokens of its own."""
    return list(KINDS[kind]()(text, add_special_tokens=False, split_special_tokens=True).input_ids)


def whole_text(kind: str, ids: Sequence[int]) -> str:
    """The text so far, without the tokens at its end that have a part of an unfinished character."""
    pieces = token_bytes(KINDS[kind]())
    for end in range(len(ids), -1, -1):
        with contextlib.suppress(UnicodeDecodeError):
            return b"".join(pieces[index] or b"" for index in ids[:end]).decode().removeprefix(" ")
    raise AssertionError("no tokens are whole")


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


@settings(deadline=None)
@given(kinds, kinds, TEXTS, st.data())
def test_a_growing_row_says_its_text_and_knows_what_stayed(target: str, draft: str, text: str, data: Any) -> None:
    ids = encode(target, text)
    row, done = bridge(target, draft).row([]), 0
    while done < len(ids):
        more = data.draw(st.integers(1, 9))
        before = list(row.ids)
        unchanged = row.extend(ids[done : done + more])
        done += more
        assert row.ids[:unchanged] == before[:unchanged]
        assert unchanged == len(before) or row.ids[unchanged : unchanged + 1] != before[unchanged : unchanged + 1]
        assert decode(KINDS[draft](), row.ids) == whole_text(target, ids[:done])
    assert decode(KINDS[draft](), row.ids) == text


@settings(deadline=None)
@given(kinds, kinds, SENTENCES, st.data())
def test_a_growing_row_has_the_tokens_of_its_whole_text(target: str, draft: str, text: str, data: Any) -> None:
    ids = encode(target, text)
    row, done = bridge(target, draft).row(ids[:3]), 3
    while done < len(ids):
        more = data.draw(st.integers(1, 5))
        row.extend(ids[done : done + more])
        done += more
        assert row.ids == bridge(target, draft).row(ids[:done]).ids
    assert row.ids == encode(draft, text) or text[-1].isspace()


def test_a_row_without_a_common_token_in_the_window_is_encoded_anew() -> None:
    both = Bridge(byte_level(300), byte_level(), look_behind=1)
    ids = encode("another byte-level", CORPUS[0])
    row = both.row(ids[:1])
    for place in range(1, len(ids)):
        row.extend(ids[place : place + 1])
        assert row.ids == both.row(ids[: place + 1]).ids


@settings(deadline=None)
@given(st.lists(st.sampled_from(["ﬁ", "½", "é", "e", "①", " ", "a", "Å", "\n"]), max_size=30), st.integers(1, 4))
def test_a_draft_that_normalizes_has_the_text_in_its_own_form(chars: list[str], more: int) -> None:
    text = "".join(chars)
    ids = encode("byte-level", text)
    row = Bridge(byte_level(), nfkc()).row([])
    for first in range(0, len(ids), more):
        row.extend(ids[first : first + more])
    assert decode(nfkc(), row.ids) == unicodedata.normalize("NFKC", text)


def permuted_bridge(kind: str) -> tuple[Bridge, list[int]]:
    permuted, permutation = permuted_tokenizer(KINDS[kind](), 5)
    return Bridge(KINDS[kind](), permuted), permutation


_same = functools.cache(lambda kind: (Bridge(KINDS[kind](), KINDS[kind]()), list(range(len(KINDS[kind]())))))
_permuted = functools.cache(permuted_bridge)


@pytest.mark.parametrize("pair", [_same, _permuted], ids=["same", "permuted"])
@settings(deadline=None)
@given(kinds, TEXTS, st.data())
def test_what_the_tokenizer_itself_would_go_on_with_comes_back_whole(
    pair: Any, kind: str, text: str, data: Any
) -> None:
    both, permutation = pair(kind)
    ids = [*encode(kind, text), KINDS[kind]().eos_token_id]
    theirs = [permutation[index] for index in ids]
    place = data.draw(st.integers(min(2, len(ids) - 1), len(ids) - 1))
    row = both.row(ids[:place])
    assume(row.ids == theirs[: len(row.ids)])
    assert both.back(row, theirs[len(row.ids) :]) == ids[place:]


@settings(deadline=None)
@given(kinds, kinds, TEXTS, st.data())
def test_what_comes_back_goes_on_with_the_drafted_text(target: str, draft: str, text: str, data: Any) -> None:
    ids = encode(target, text)
    place = data.draw(st.integers(min(2, len(ids)), len(ids)))
    row = bridge(target, draft).row(ids[:place])
    rest = text.removeprefix(whole_text(target, ids[:place]))
    back = bridge(target, draft).back(row, PlainEncoder(KINDS[draft]()).inside(rest, is_open=False).ids)
    assert decode(KINDS[target](), ids[:place] + back) == text


@settings(deadline=None)
@given(kinds, st.lists(SENTENCES | UNICODE | REPEATED, min_size=1, max_size=3).map("".join), st.booleans())
@example("sentencepiece", " ", True)
@example("metaspace", "  the", False)
def test_text_inside_a_row_gets_and_loses_no_space(kind: str, text: str, is_open: bool) -> None:
    pieces = token_bytes(KINDS[kind]())
    ids = PlainEncoder(KINDS[kind]()).inside(text, is_open).ids
    assert b"".join(pieces[index] or b"" for index in ids) == text.encode()


def test_text_that_looks_like_a_special_token_stays_text_both_ways() -> None:
    for target, draft in (("byte-level", "sentencepiece"), ("sentencepiece", "byte-level")):
        ids = encode(target, "a </s><s>[INST] <|sep|>")
        row = bridge(target, draft).row(ids[:4])
        row.extend(ids[4:])
        assert decode(KINDS[draft](), row.ids) == "a </s><s>[INST] <|sep|>"
        assert set(row.ids) & set(KINDS[draft]().all_special_ids) == set()
        again = bridge(target, draft).back(bridge(target, draft).row(ids[:4]), encode(draft, "</s>"))
        assert set(again) & set(KINDS[target]().all_special_ids) == set()


def special(kind: Any, *contents: str) -> list[int]:
    return [kind().convert_tokens_to_ids(content) for content in contents]


def test_special_tokens_that_both_have_are_carried_and_no_space_or_bos_comes_after_them() -> None:
    first, separator, end = special(byte_level, "<s>", "<|sep|>", "</s>")
    row = bridge("byte-level", "sentencepiece").row([first, *encode("byte-level", "the cat"), separator])
    row.extend([*encode("byte-level", "the mat"), end])
    inside = PlainEncoder(sentencepiece()).inside("the mat", is_open=False).ids
    first, separator, end = special(sentencepiece, "<s>", "<|sep|>", "</s>")
    assert row.ids == [first, *encode("sentencepiece", "the cat"), separator, *inside, end]
    assert sentencepiece().convert_ids_to_tokens(inside[0])[0] != "▁"


def test_special_tokens_that_the_draft_lacks_are_left_out_and_eos_becomes_its_eos() -> None:
    first, separator, end = special(byte_level, "<s>", "<|sep|>", "</s>")
    parts = encode("byte-level", "the"), encode("byte-level", " cat")
    row = Bridge(byte_level(), nfkc()).row([first, *parts[0], separator, *parts[1], end])
    assert row.ids == [*nfkc()("the cat").input_ids, nfkc().eos_token_id]


def test_a_draft_ends_at_a_special_token_that_the_target_lacks_and_goes_on_after_one_it_has() -> None:
    both = Bridge(nfkc(), byte_level())
    row = both.row(nfkc()("the cat").input_ids)
    sat, more = encode("byte-level", " sat"), encode("byte-level", "on")
    target_sat, target_more = (nfkc()(text).input_ids for text in (" sat", "on"))
    (separator,) = special(byte_level, "<|sep|>")
    assert both.back(row, [*sat, separator, *more]) == target_sat
    eos = byte_level().eos_token_id
    assert both.back(row, [*sat, eos, *more]) == [*target_sat, nfkc().eos_token_id, *target_more]
    assert both.back(row, [eos]) == [nfkc().eos_token_id]
    assert both.back(row, [separator]) == []
    assert both.back(row, [len(byte_level()) + 7]) == []


def test_a_character_in_parts_is_held_back_until_it_is_whole() -> None:
    ids = encode("sentencepiece", "a🙂b")
    parts = [index for index, token in enumerate(ids) if sentencepiece().convert_ids_to_tokens(token)[:3] == "<0x"]
    row = bridge("sentencepiece", "byte-level").row(ids[: parts[0]])
    assert [row.extend([ids[part]]) for part in parts[:-1]] == [1] * (len(parts) - 1)
    assert decode(byte_level(), row.ids) == "a"
    row.extend([ids[parts[-1]]])
    assert decode(byte_level(), row.ids) == "a🙂"


def test_a_draft_that_contradicts_the_rows_bytes_is_no_draft() -> None:
    ids = encode("sentencepiece", "a🙂")
    both = bridge("sentencepiece", "byte-level")
    row = both.row(ids[:-2])
    assert row.source.pending
    assert both.back(row, encode("byte-level", "🙂b")) == [*ids[-2:], *encode("sentencepiece", "b")[-1:]]
    assert both.back(row, encode("byte-level", "é")) == []
    assert both.back(row, [byte_level().eos_token_id]) == []
    assert both.back(row, []) == []


def test_a_draft_that_stops_inside_a_character_is_taken_up_to_it() -> None:
    both = bridge("sentencepiece", "byte-level")
    row = both.row(encode("sentencepiece", "the cat"))
    drafted = encode("byte-level", " sat🙂")
    assert decode(byte_level(), drafted[:-1]).endswith("�")
    assert both.back(row, drafted[:-1]) == encode("sentencepiece", "sat")
    assert both.back(row, [*drafted[:-1], byte_level().eos_token_id]) == encode("sentencepiece", "sat")
    assert row.ids == encode("byte-level", "the cat")


def test_a_row_that_ends_inside_a_word_goes_on_inside_it() -> None:
    the = encode("byte-level", "the capital")
    both = bridge("byte-level", "sentencepiece")
    split = [*the[:-1], *byte_level()("c").input_ids]  # not how the tokenizer itself would cut "capital"
    back = both.back(both.row(split), PlainEncoder(sentencepiece()).inside("apital of", is_open=True).ids)
    assert decode(byte_level(), [*split, *back]) == decode(byte_level(), split) + "apital of"


def test_spaces_at_the_end_are_cut_as_before_a_word() -> None:
    both = bridge("byte-level", "byte-level")
    ids = encode("byte-level", "the\n\nthe")
    assert encode("byte-level", "the\n\n") != ids[:-1]
    row = both.row(ids[:1])
    assert both.back(row, ids[1:-1]) == ids[1:-1]
    row.extend(ids[1:-1])
    assert row.ids == ids[:-1]
    assert row.extend([byte_level().eos_token_id]) == 1
    assert row.ids == [*encode("byte-level", "the\n\n"), byte_level().eos_token_id]


@pytest.mark.smollm
@settings(max_examples=30, deadline=None)
@given(SENTENCES, st.integers(1, 6))
def test_the_demo_models_permuted_copy_drafts_the_demo_models_own_tokens(text: str, more: int) -> None:
    tokenizer, both, permutation = demo_pair()
    ids = tokenizer(text).input_ids
    theirs = [permutation[index] for index in ids]
    row = both.row(ids[:1])
    for place in range(1, len(ids), more):
        # White space whose end isn't known yet may be cut otherwise; what follows then isn't the draft's own.
        if row.ids == theirs[: len(row.ids)]:
            assert both.back(row, theirs[len(row.ids) :]) == ids[place:]
        row.extend(ids[place : place + more])
    assert row.ids == theirs


@functools.cache
def demo_pair() -> tuple[Any, Bridge, list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(demo_model())
    permuted, permutation = permuted_tokenizer(tokenizer, 1)
    return tokenizer, Bridge(tokenizer, permuted), permutation
