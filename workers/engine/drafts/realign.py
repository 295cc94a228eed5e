"""Where two tokenizations of one text meet."""

from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher


def realign(old: Sequence[Hashable], new: Sequence[Hashable]) -> tuple[int, int] | None:
    """The ends, in old and in new, of the longest diagonal of equal items; None where no item is in both.

    Up to there the old items stand for the same text as the new ones, so old[:end] + new[end:] stands for the new text:
    the look-behind of universal assisted generation (Timor et al. 2025, arXiv 2502.05202). A diagonal of bare ids may
    join two places of a text that repeats itself; one of (id, place in the text) cannot.
    """
    if list(new[: len(old)]) == list(old):
        return (len(old), len(old)) if old else None
    match = SequenceMatcher(None, old, new, autojunk=False).find_longest_match()
    return (match.a + match.size, match.b + match.size) if match.size else None


def num_common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many leading items are equal."""
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))
