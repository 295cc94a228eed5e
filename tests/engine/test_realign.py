"""Two tokenizations of one text are joined at their longest diagonal."""

from hypothesis import given
from hypothesis import strategies as st

from workers.engine.drafts.realign import num_common, realign

items = st.lists(st.integers(0, 3), max_size=12)


def longest(old: list[int], new: list[int]) -> int:
    """The length of the longest diagonal, by trying all."""
    lengths = [
        size
        for start in range(len(old))
        for other in range(len(new))
        for size in range(1, min(len(old) - start, len(new) - other) + 1)
        if old[start : start + size] == new[other : other + size]
    ]
    return max(lengths, default=0)


@given(items, items)
def test_the_ends_are_those_of_a_longest_diagonal(old: list[int], new: list[int]) -> None:
    size = longest(old, new)
    ends = realign(old, new)
    assert (ends is None) == (size == 0)
    if ends is not None:
        assert old[ends[0] - size : ends[0]] == new[ends[1] - size : ends[1]]
        assert len(old[ends[0] - size : ends[0]]) == size


@given(items, items)
def test_what_only_grew_is_joined_at_its_old_end(old: list[int], more: list[int]) -> None:
    assert realign(old, old + more) == ((len(old), len(old)) if old else None)


def test_a_changed_end_is_left_out_and_a_changed_start_does_not_count() -> None:
    assert realign([1, 2, 3, 4, 9], [7, 2, 3, 4, 5, 6]) == (4, 4)


def test_a_text_that_repeats_itself_is_joined_by_its_places() -> None:
    old = [(5, place) for place in range(10, 14)]
    new = [(8, 10), *((5, place) for place in range(12, 16))]
    assert realign(old, new) == (4, 3)


@given(items, items, items)
def test_the_common_start_is_counted(start: list[int], one: list[int], other: list[int]) -> None:
    count = num_common(start + one, start + other)
    assert count >= len(start)
    assert (start + one)[:count] == (start + other)[:count]
    assert count in (len(start + one), len(start + other)) or (start + one)[count] != (start + other)[count]
