"""Drafts from what followed the row's latest tokens before, in the row itself or in finished rows' outputs.

SuffixDecoding (Oliaro et al., arXiv 2411.04975).
"""

from collections import deque
from collections.abc import Sequence

from workers.engine.drafts.guess import NO_GUESS, Guess
from workers.engine.drafts.suffix_tree import Point, SuffixTree


class SuffixDraft:
    """The draft source `suffix`: one tree per row over prompt and output, one over the outputs of finished rows."""

    def __init__(
        self,
        num_slots: int,
        max_depth: int = 24,
        max_tokens: int = 200_000,
        min_probability: float = 0.1,
        max_factor: float = 1.0,
    ) -> None:
        """max_depth: tokens of a match and what follows it. max_tokens: outputs kept. max_factor: drafted tokens per
        matched token. min_probability: of all of a guess being right."""
        self._max_depth, self._min_probability, self._max_factor = max_depth, min_probability, max_factor
        self._rows: list[_Row | None] = [None] * num_slots
        self._finished = FinishedRows(max_depth, max_tokens)

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        self._rows[slot] = _Row(self._max_depth, num_prompt_tokens=len(tokens) - 1)
        self.extend(slot, tokens)

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        self._row(slot).tree.extend(tokens)

    def finish(self, slot: int) -> None:
        row = self._row(slot)
        self._finished.add(row.tree.tokens[row.num_prompt_tokens :])
        self._rows[slot] = None

    def guess(self, limits: Sequence[int]) -> list[Guess]:
        rows = zip(self._rows, limits, strict=True)
        return [self._guess(row, limit) if row and limit > 0 else NO_GUESS for row, limit in rows]

    def _row(self, slot: int) -> "_Row":
        row = self._rows[slot]
        if row is None:
            raise ValueError(f"no row has begun in slot {slot}")
        return row

    def _guess(self, row: "_Row", limit: int) -> Guess:
        """The continuation with most tokens expected to be right; of equals the row's own, then as in _matches."""
        best, most_expected = NO_GUESS, 0.0
        for tree, ends in ((row.tree, row.tree.ends), (self._finished.tree, row.ends_in(self._finished))):
            for max_tokens, length in self._matches(len(ends), limit):
                if max_tokens <= most_expected:
                    break
                tokens, probabilities = tree.follow(ends[-length], max_tokens, self._min_probability)
                if sum(probabilities) > most_expected:
                    best, most_expected = Guess(tokens, kind_of(length, probabilities[0])), sum(probabilities)
        return best

    def _matches(self, longest: int, limit: int) -> list[tuple[int, int]]:
        """(tokens to draft at most, length of the match), most tokens first, so that few matches need a look."""
        lengths = range(1, longest + 1)
        depth, factor = self._max_depth, self._max_factor
        return sorted(((min(limit, int(factor * n), depth - n), n) for n in lengths), reverse=True)


class _Row:
    """A row's own tree, and where its latest tokens lead among finished rows."""

    def __init__(self, max_depth: int, num_prompt_tokens: int) -> None:
        self.tree = SuffixTree(max_depth)
        self.num_prompt_tokens = num_prompt_tokens
        self._ends: list[Point] = []
        self._num_followed = 0
        self._num_finished = -1

    def ends_in(self, finished: "FinishedRows") -> list[Point]:
        """Follows the tokens that came since the last call; once the tree has changed, the last max_depth anew."""
        tokens = self.tree.tokens
        if self._num_finished != finished.num_added:
            self._ends, self._num_finished = [], finished.num_added
            self._num_followed = max(0, len(tokens) - self.tree.max_depth)
        for token in tokens[self._num_followed :]:
            self._ends = finished.tree.advance(self._ends, token)
        self._num_followed = len(tokens)
        return self._ends


class FinishedRows:
    """A tree over the latest finished outputs, of at most max_tokens tokens together."""

    def __init__(self, max_depth: int, max_tokens: int) -> None:
        self.tree = SuffixTree(max_depth)
        self._max_tokens = max_tokens
        self._outputs: deque[list[int]] = deque()
        self._num_tokens = 0
        self.num_added = 0

    def add(self, output: Sequence[int]) -> None:
        """Room is made first, by the oldest; an output that alone is too long is left out."""
        if len(output) > self._max_tokens:
            return
        while self._num_tokens + len(output) > self._max_tokens:
            oldest = self._outputs.popleft()
            self._num_tokens -= len(oldest)
            self.tree.remove(oldest)
        self.num_added += 1
        self.tree.extend(output)
        self._outputs.append(self.tree.close())
        self._num_tokens += len(output)


def kind_of(match_length: int, probability: float) -> int:
    """0 to 9: the match's length, 1 to 5 and more, and whether the first token's probability is 0.75 or more.

    The length tells most: what followed a single token once has probability 1 and is seldom right. In a replay of
    real outputs the two together told accepted first tokens from refused ones better than deciles of probability.
    """
    return 2 * (min(match_length, 5) - 1) + (probability >= 0.75)
