"""The n-gram index finds what a search of the whole row would find."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.engine.drafts.ngram import NgramDraft
from workers.engine.drafts.none import NoDraft

pytestmark = pytest.mark.engine

tokens = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def guessed(draft: NgramDraft | NoDraft, limits: list[int]) -> list[list[int]]:
    return [guess.tokens for guess in draft.guess(limits)]


def searched(row: list[int], limit: int, ngram_min: int, ngram_max: int) -> list[int]:
    """The longest n-gram's most recent earlier occurrence, by looking everywhere; goes on in its own draft."""
    for size in range(min(ngram_max, len(row) - 1), ngram_min - 1, -1):
        for start in range(len(row) - size - 1, -1, -1):
            if row[start : start + size] == row[-size:]:
                copied = list(row)
                for _ in range(limit):
                    copied.append(copied[len(copied) - len(row) + start + size])
                return copied[len(row) :]
    return []


@given(st.lists(tokens, min_size=1, max_size=5), st.integers(1, 2), st.integers(2, 4), st.integers(0, 6))
def test_the_index_agrees_with_a_search(parts: list[list[int]], ngram_min: int, ngram_max: int, limit: int) -> None:
    draft = NgramDraft(1, ngram_min, ngram_max)
    draft.start(0, parts[0])
    for part in parts[1:]:
        draft.extend(0, part)
    row = [token for part in parts for token in part]
    assert guessed(draft, [limit]) == [searched(row, limit, ngram_min, ngram_max)]


def test_the_longest_ngram_wins_over_a_more_recent_shorter_one() -> None:
    draft = NgramDraft(1, 1, 3)
    draft.start(0, [1, 2, 3, 7, 8, 3, 9, 1, 2, 3])
    assert guessed(draft, [2]) == [[7, 8]]


def test_the_most_recent_occurrence_wins() -> None:
    draft = NgramDraft(1, 1, 1)
    draft.start(0, [5, 1, 5, 2, 5])
    assert guessed(draft, [1]) == [[2]]


def test_a_loop_is_drafted_to_the_limit() -> None:
    draft = NgramDraft(1, 1, 3)
    draft.start(0, [9, 4, 6, 4, 6])
    assert guessed(draft, [5]) == [[4, 6, 4, 6, 4]]


def test_slots_do_not_see_each_other_and_are_started_afresh() -> None:
    draft = NgramDraft(2, 1, 3)
    draft.start(0, [1, 2, 1])
    draft.start(1, [1, 5, 1])
    assert guessed(draft, [1, 1]) == [[2], [5]]
    draft.start(0, [1, 3])
    assert guessed(draft, [1, 0]) == [[], []]


def test_the_source_none_has_no_guess() -> None:
    draft = NoDraft()
    draft.start(0, [1, 1, 1])
    assert guessed(draft, [4, 0]) == [[], []]


def test_a_guesss_kind_is_the_size_of_its_match() -> None:
    draft = NgramDraft(1, 1, 3)
    draft.start(0, [1, 2, 3, 1, 2])
    assert draft.guess([1])[0].kind == 2
    draft.extend(0, [3])
    assert draft.guess([1])[0].kind == 3
