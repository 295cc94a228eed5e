"""The draft source `suffix` guesses what a search of the row and of finished outputs would guess."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.test_suffix_tree import followed, nodes
from workers.engine.drafts.guess import NO_GUESS, Guess
from workers.engine.drafts.suffix import FinishedRows, SuffixDraft, kind_of

pytestmark = pytest.mark.engine

DEPTH, MAX_TOKENS, LEAST = 6, 30, 0.3
tokens = st.lists(st.integers(0, 2), min_size=1, max_size=12)


def searched(row: list[int], finished: list[list[int]], limit: int, factor: float) -> Guess:
    """The best of all matches, by looking everywhere; the first of equals."""
    best, most = NO_GUESS, 0.0
    for text in ([row], finished):
        lengths = range(1, min(DEPTH - 1, len(row)) + 1)
        for room, length in sorted(((min(limit, int(factor * n), DEPTH - n), n) for n in lengths), reverse=True):
            drafted, probabilities = followed(text, row[-length:], room, LEAST)
            if sum(probabilities) > most:
                best, most = Guess(drafted, kind_of(length, probabilities[0])), sum(probabilities)
    return best


def kept_outputs(outputs: list[list[int]], max_tokens: int) -> list[list[int]]:
    kept: deque[list[int]] = deque()
    for output in outputs:
        if len(output) <= max_tokens:
            kept.append(output)
        while sum(len(one) for one in kept) > max_tokens:
            kept.popleft()
    return list(kept)


rounds = st.lists(st.tuples(tokens, st.lists(tokens, max_size=3)), min_size=1, max_size=8)


@given(rounds, st.integers(0, 6), st.sampled_from([0.5, 1.0, 2.0]))
def test_the_guess_is_the_one_a_search_would_find(
    rows: list[tuple[list[int], list[list[int]]]], limit: int, factor: float
) -> None:
    draft = SuffixDraft(1, DEPTH, MAX_TOKENS, LEAST, factor)
    outputs: list[list[int]] = []
    for start, parts in rows:
        draft.start(0, start)
        row = list(start)
        for part in [[], *parts]:
            draft.extend(0, part)
            row += part
            assert draft.guess([limit]) == [searched(row, kept_outputs(outputs, MAX_TOKENS), limit, factor)]
        draft.finish(0)
        outputs.append(row[len(start) - 1 :])


@given(st.lists(tokens, min_size=2, max_size=4), st.data())
def test_a_row_that_another_finishes_beside_sees_its_output(parts: list[list[int]], data: st.DataObject) -> None:
    """What a row has followed in the tree of finished rows is followed anew once that tree has changed."""
    draft = SuffixDraft(2, DEPTH, MAX_TOKENS, LEAST)
    row = list(parts[0])
    finished: list[list[int]] = []
    draft.start(0, row)
    for part in parts[1:]:
        draft.extend(0, part)
        row += part
        if data.draw(st.booleans()):
            other = data.draw(tokens)
            draft.start(1, other[:1])
            draft.extend(1, other[1:])
            draft.finish(1)
            finished.append(other)
        assert draft.guess([4, 0])[0] == searched(row, kept_outputs(finished, MAX_TOKENS), 4, 1.0)


@given(st.lists(tokens, max_size=12), st.integers(0, 40))
def test_memory_is_bounded_by_the_tokens_kept(outputs: list[list[int]], max_tokens: int) -> None:
    rows = FinishedRows(DEPTH, max_tokens)
    for output in outputs:
        rows.add(output)
        tree = list(nodes(rows.tree.root))
        assert len(tree) <= 2 * max_tokens
        whole = {id(node.source): len(node.source) for node in tree if len(node.source) > DEPTH}
        assert sum(whole.values()) <= max_tokens


def test_a_templated_row_is_drafted_from_finished_rows() -> None:
    draft = SuffixDraft(2)
    for name in (101, 102, 103):
        draft.start(0, [7, 8, name, 1])
        draft.extend(0, [2, 3, name, 4, 5, 6, 9, 10])
        draft.finish(0)
    draft.start(1, [50, 51, 104, 1])
    assert draft.guess([0, 4])[1].tokens == [2]
    draft.extend(1, [2, 3])
    assert draft.guess([0, 4])[1] == Guess([103, 4, 5], kind_of(3, 1 / 3))  # the latest of three names
    draft.extend(1, [104, 4, 5, 6])
    assert draft.guess([0, 4])[1].tokens == [9, 10]


def test_the_prompts_of_finished_rows_are_not_drafted() -> None:
    draft = SuffixDraft(1)
    draft.start(0, [1, 2, 3, 4])
    draft.finish(0)
    draft.start(0, [9, 1, 2])
    assert draft.guess([4]) == [NO_GUESS]


def test_an_unfinished_output_is_counted_once_and_in_its_row_alone() -> None:
    draft = SuffixDraft(2)
    draft.start(0, [1, 2])
    draft.extend(0, [1])
    draft.start(1, [1])
    assert draft.guess([1, 1]) == [Guess([2], 1), NO_GUESS]


def test_a_longer_match_in_finished_rows_wins_over_a_shorter_one_in_the_row() -> None:
    draft = SuffixDraft(1)
    draft.start(0, [1])
    draft.extend(0, [2, 3, 4, 5, 6])
    draft.finish(0)
    draft.start(0, [3, 8, 1, 2, 3])
    assert draft.guess([3]) == [Guess([4, 5, 6], kind_of(3, 1.0))]


def test_an_abandoned_row_leaves_nothing() -> None:
    draft = SuffixDraft(1)
    draft.start(0, [1, 2, 3, 1])
    draft.start(0, [5, 1])
    assert draft.guess([2]) == [NO_GUESS]


def test_a_finished_row_is_guessed_for_no_more() -> None:
    draft = SuffixDraft(1)
    draft.start(0, [1, 2, 1])
    draft.finish(0)
    assert draft.guess([2]) == [NO_GUESS]


def test_a_slot_without_a_row_has_no_guess_and_takes_no_tokens() -> None:
    draft = SuffixDraft(1)
    assert draft.guess([3]) == [NO_GUESS]
    with pytest.raises(ValueError, match="no row has begun in slot 0"):
        draft.extend(0, [1])


def test_outputs_longer_than_all_that_is_kept_are_left_out() -> None:
    draft = SuffixDraft(1, max_tokens=2)
    for output in ([1, 2], [3, 4, 5]):
        draft.start(0, output[:1])
        draft.extend(0, output[1:])
        draft.finish(0)
    draft.start(0, [1])
    assert draft.guess([1])[0].tokens == [2]


def test_kinds_are_ten_and_grow_with_the_match_and_the_probability() -> None:
    kinds = [kind_of(length, probability) for length in range(1, 8) for probability in (0.5, 0.75)]
    assert kinds == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 9, 8, 9]
