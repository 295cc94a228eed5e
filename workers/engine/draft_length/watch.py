"""Judges guesses of free sources beyond the windows that were verified, from how the rows went on.

A guess that costs nothing is made whether or not a window is spent on it, and each token that the row then commits says
whether it was right. So a source needs no trial rounds to be known at every position, even while all steps are plain.
"""

from collections.abc import Sequence
from typing import NamedTuple

from workers.engine.drafts.guess import Guess


class Verdict(NamedTuple):
    """Of a guess, num_hits tokens from position first on were right, and the next wrong if is_miss."""

    source: str
    kind: int | None  # None: of no kind in particular
    first: int
    num_hits: int
    is_miss: bool


class Watched(NamedTuple):
    """A guess that was right so far, up to position."""

    source: str
    guess: Guess
    position: int


class Watch:
    """One guess a slot: the next is taken up when it has failed or is used up, as a full window would be."""

    def __init__(self, batch_size: int) -> None:
        self._watched: list[Watched | None] = [None] * batch_size

    def start(self, slot: int) -> None:
        self._watched[slot] = None

    def judge(self, slot: int, tokens: Sequence[int]) -> Verdict | None:
        """What the row's new tokens say of the guess that is watched there."""
        watched = self._watched[slot]
        if watched is None or not tokens:
            return None
        return self._compare(slot, watched, tokens)

    def take_up(self, slot: int, source: str, guess: Guess, num_verified: int, rest: Sequence[int]) -> Verdict | None:
        """A guess whose first num_verified tokens a window found right; rest: the row's new tokens after those."""
        if self._watched[slot] is not None or num_verified >= len(guess.tokens):
            return None
        return self._compare(slot, Watched(source, guess, num_verified), rest)

    def _compare(self, slot: int, watched: Watched, tokens: Sequence[int]) -> Verdict:
        guessed = watched.guess.tokens[watched.position :]
        pairs = zip(guessed, tokens, strict=False)
        num_hits = next(
            (index for index, (ours, its) in enumerate(pairs) if ours != its), min(len(guessed), len(tokens))
        )
        is_miss = num_hits < min(len(guessed), len(tokens))
        goes_on = not is_miss and len(guessed) > len(tokens)
        self._watched[slot] = watched._replace(position=watched.position + num_hits) if goes_on else None
        return Verdict(watched.source, watched.guess.kind, watched.position, num_hits, is_miss)
