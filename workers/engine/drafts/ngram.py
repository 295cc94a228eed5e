"""Drafts from the row itself: what followed the last time its latest tokens occurred.

Prompt lookup decoding (Saxena 2023), with an index that grows with the row instead of a search in every round.
"""

from collections.abc import Sequence

from workers.engine.drafts.guess import NO_GUESS, Guess


class NgramDraft:
    """The draft source `ngram`: n-grams of ngram_min to ngram_max tokens, longest first, most recent occurrence."""

    def __init__(self, num_slots: int, ngram_min: int, ngram_max: int) -> None:
        self._sizes = range(ngram_max, ngram_min - 1, -1)
        self._rows = [NgramIndex(self._sizes) for _ in range(num_slots)]

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        self._rows[slot] = NgramIndex(self._sizes)
        self._rows[slot].extend(tokens)

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        self._rows[slot].extend(tokens)

    def finish(self, slot: int) -> None:
        """Nothing: a row's tokens are of no use to others."""

    def guess(self, limits: Sequence[int]) -> list[Guess]:
        return [row.guess(limit) for row, limit in zip(self._rows, limits, strict=True)]


class NgramIndex:
    """One row's tokens, and where each of its n-grams was last followed by another token. sizes: in order of trial."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._tokens: list[int] = []
        self._next_position: dict[tuple[int, ...], int] = {}

    def extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            position = len(self._tokens)
            for size in self._sizes:
                if size <= position:
                    self._next_position[tuple(self._tokens[position - size :])] = position
            self._tokens.append(token)

    def guess(self, limit: int) -> Guess:
        """At most limit tokens; a copy that reaches the row's end goes on in itself, as repetitions do.

        Its kind is the size of the match: longer matches are right more often.
        """
        if limit <= 0:
            return NO_GUESS
        for size in self._sizes:
            position = self._next_position.get(tuple(self._tokens[-size:]))
            if position is not None:
                period = len(self._tokens) - position
                return Guess([self._tokens[position + index % period] for index in range(limit)], kind=size)
        return NO_GUESS
