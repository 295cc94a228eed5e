"""Stop texts: where the first of them begins in a row's text, and which tokens are left before it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

Decode = Callable[[Sequence[int]], str]


class TextCut(NamedTuple):
    """What a stop text leaves of a row: its text, and its first num_tokens tokens, whose decoding begins with that."""

    num_tokens: int
    text: str


class StopTexts:
    """The stop texts of one row, looked for in the whole text: they may begin in any token and end in any later one."""

    def __init__(self, stops: Sequence[str], decode: Decode, min_new_tokens: int = 0) -> None:
        """min_new_tokens: a stop text that ends within so many tokens is none."""
        self._stops, self._decode, self._min_new_tokens = stops, decode, min_new_tokens

    def cut(self, token_ids: Sequence[int], num_new: int) -> TextCut | None:
        """The cut at the stop text that is complete first; None where there is none. num_new: tokens of this round.

        Which stop comes first is settled token by token, as if the round had brought its tokens one at a time.
        """
        if self._begin(token_ids) is None:
            return None
        for num_tokens in range(len(token_ids) - num_new + 1, len(token_ids) + 1):
            begin = self._begin(token_ids[:num_tokens])
            if begin is not None:
                text = self._decode(token_ids[:num_tokens])[:begin]
                return TextCut(self._num_tokens_of(text, token_ids[:num_tokens]), text)
        return None

    def _begin(self, token_ids: Sequence[int]) -> int | None:
        """Where the earliest stop text begins in the tokens' text."""
        if len(token_ids) <= self._min_new_tokens:
            return None
        text = self._decode(token_ids)
        num_safe = len(self._decode(token_ids[: self._min_new_tokens])) if self._min_new_tokens else 0
        begins = [text.find(stop, max(num_safe - len(stop) + 1, 0)) for stop in self._stops]
        return min((begin for begin in begins if begin >= 0), default=None)

    def _num_tokens_of(self, text: str, token_ids: Sequence[int]) -> int:
        """The fewest tokens whose decoding begins with the text: one that a stop cuts into is kept."""
        num_tokens = len(token_ids)
        while num_tokens > 0 and self._decode(token_ids[: num_tokens - 1]).startswith(text):
            num_tokens -= 1
        return num_tokens
