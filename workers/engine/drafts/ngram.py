"""Drafts from the row itself: what followed the last time its latest tokens occurred.

Prompt lookup decoding (Saxena 2023), with an index that grows with the row instead of a search in every round.
"""

from collections.abc import Sequence


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

    def propose(self, limits: Sequence[int]) -> list[list[int]]:
        return [row.propose(limit) for row, limit in zip(self._rows, limits, strict=True)]


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

    def propose(self, limit: int) -> list[int]:
        """At most limit tokens; a copy that reaches the row's end goes on in itself, as repetitions do."""
        if limit <= 0:
            return []
        for size in self._sizes:
            position = self._next_position.get(tuple(self._tokens[-size:]))
            if position is not None:
                period = len(self._tokens) - position
                return [self._tokens[position + index % period] for index in range(limit)]
        return []
