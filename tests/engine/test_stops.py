"""A stop text is found wherever it falls, and text, tokens, counts and statistics are cut at one place."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.generation import Request
from tests.engine.conftest import endings, make_requests, reference
from tests.engine.every_draft import ALL, run, target
from tests.engine.test_statistics import assert_identities
from workers.engine.rows import Row, RowLimits
from workers.engine.stops import StopTexts, TextCut

pytestmark = pytest.mark.engine

# Tokens of one to three bytes, which cut characters of several bytes in two, and one token of no text at all.
PIECES = [b"a", b"b", b"ab", b"\xe6\x97", b"\xa5", b"\xe6", b"\x97\xa5", b"", b" ", b"ba"]


def decode(token_ids) -> str:
    return b"".join(PIECES[token] for token in token_ids).decode("utf-8", "replace")


token_ids = st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=14)
stops = st.lists(st.sampled_from(["ab", "ba", "aab", "日", "b日", "a b", "日a"]), min_size=1, max_size=2, unique=True)


def one_by_one(ids: list[int], stops: list[str], least: int) -> TextCut | None:
    """By looking at the whole text after every token."""
    for num_tokens in range(least + 1, len(ids) + 1):
        text, safe = decode(ids[:num_tokens]), len(decode(ids[:least]))
        begins = [b for s in stops for b in range(len(text)) if text.startswith(s, b) and b + len(s) > safe]
        if begins:
            kept = next(n for n in range(num_tokens + 1) if decode(ids[:n]).startswith(text[: min(begins)]))
            return TextCut(kept, text[: min(begins)])
    return None


@settings(deadline=None, max_examples=400)
@given(token_ids, stops, st.integers(0, 4), st.data())
def test_a_run_is_cut_as_if_its_tokens_came_one_by_one(
    ids: list[int], texts: list[str], least: int, data: st.DataObject
) -> None:
    expected = one_by_one(ids, texts, least)
    found = StopTexts(texts, decode, least)
    start = 0
    while start < len(ids):
        end = data.draw(st.integers(start + 1, len(ids)))
        cut = found.cut(ids[:end], end - start)
        if cut is not None:
            assert cut == expected
            return
        start = end
    assert expected is None


def row_with(stop: tuple[str, ...], max_new_tokens: int = 8, **options) -> Row:
    limits = RowLimits(frozenset({7}), context_length=50, vocab_size=10, decode=decode)
    return Row(Request(0, (1,), max_new_tokens, seed=0, stop=stop, **options), 0, limits)


def test_a_stop_text_that_begins_in_an_earlier_round_takes_its_tokens_back() -> None:
    row = row_with(("aba",))
    row.keep([1])
    row.keep_round([0], num_drafted=0)
    row.keep_round([1, 0, 1], num_drafted=2)
    assert (row.generated, row.text, row.finish_reason) == ([1], "b", "stop")
    completion = row.completion(2)
    assert_identities(1, completion.statistics)
    assert completion.statistics.num_cut_target_tokens == 2
    assert completion.statistics.num_accepted_draft_tokens == 0


def test_a_token_that_a_stop_text_cuts_into_is_kept_and_the_text_is_not() -> None:
    row = row_with(("ba",))
    row.keep([2])
    row.keep_round([0], num_drafted=0)
    assert (row.generated, row.text, row.finish_reason) == ([2], "a", "stop")


def test_a_stop_text_at_the_very_start_leaves_nothing() -> None:
    row = row_with(("a",))
    row.keep([2])
    assert (row.generated, row.text, row.finish_reason) == ([], "", "stop")
    assert_identities(0, row.completion(2).statistics)


def test_a_stop_text_wins_over_the_length_limit_behind_it() -> None:
    row = row_with(("b",), max_new_tokens=5)
    row.keep([0])
    row.keep_round([0, 1, 0, 0, 0], num_drafted=4)
    assert (row.generated, row.finish_reason) == ([0, 0], "stop")


def test_a_stop_text_past_the_length_limit_is_none() -> None:
    row = row_with(("b",), max_new_tokens=3)
    row.keep([0])
    row.keep_round([0, 0, 1], num_drafted=2)
    assert (row.generated, row.text, row.finish_reason) == ([0, 0, 0], None, "length")


def test_a_stop_text_after_an_eos_is_none() -> None:
    row = row_with(("b",))
    row.keep([0])
    row.keep_round([7, 1], num_drafted=1)
    assert (row.generated, row.text, row.finish_reason) == ([0, 7], None, "stop")


def test_text_within_the_least_length_stops_nothing() -> None:
    row = row_with(("ab",), min_new_tokens=3)
    row.keep([0])
    row.keep_round([1, 0, 1, 0], num_drafted=3)
    assert (row.generated, row.text) == ([0, 1], "ab")


REQUESTS = make_requests(8, 16, seed=51)


@pytest.mark.parametrize("source", ALL)
def test_rows_stop_at_the_same_place_whatever_drafts(source: str) -> None:
    own = target()
    texts = {row_index: own.decode(e.token_ids) for row_index, e in reference(own, REQUESTS).items()}
    asked = [replace(r, stop=(texts[r.row_index][6:8], texts[r.row_index][9:12])) for r in REQUESTS]
    expected = reference(own, asked)
    completions = run(source, own, asked, expected, draft_lengths=(5,))
    assert endings(completions) == expected
    for completion in completions:
        assert_identities(len(completion.token_ids), completion.statistics)
        if completion.text is not None:
            assert own.decode(completion.token_ids).startswith(completion.text)
            assert not any(stop in completion.text for stop in asked[completion.row_index].stop)
    assert sum(completion.text is not None for completion in completions) >= 6
