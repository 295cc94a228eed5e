"""Encoding text that stands inside a row: nothing is added to it and nothing in it is taken for a special token."""

import copy
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from tokenizers import processors

from workers.engine.drafts.token_bytes import backend_of, num_leading_spaces, token_bytes

_ANCHORS = ("\n", "a", ".")
_SEQUEL = "a"


class Pieces(NamedTuple):
    """Tokens and where each starts and ends in the text, in characters. Tokens that share a character overlap."""

    ids: list[int]
    starts: list[int]
    ends: list[int]

    def after(self, position: int) -> "Pieces | None":
        """The tokens from a place in the text on, which is their 0; None where a token lies across it."""
        first = boundary(self.starts, self.ends, position)
        if first is None:
            return None
        return Pieces(self.ids[first:], self.starts[first:], self.ends[first:]).moved(-position)

    def before(self, position: int) -> "Pieces | None":
        """The tokens up to a place in the text; None where a token lies across it."""
        end = boundary(self.starts, self.ends, position)
        return None if end is None else Pieces(self.ids[:end], self.starts[:end], self.ends[:end])

    def moved(self, distance: int) -> "Pieces":
        """The same tokens in a text that begins so much earlier."""
        return Pieces(self.ids, [start + distance for start in self.starts], [end + distance for end in self.ends])


def boundary(starts: Sequence[int], ends: Sequence[int], position: int) -> int | None:
    """The index of the first token after a place in the text; None where no token ends there or one lies across it."""
    index = bisect_right(ends, position)
    has_end = ends[index - 1] == position if index else position == 0
    return index if has_end and (index == len(starts) or starts[index] >= position) else None


class PlainEncoder:
    """A tokenizer's own copy, without templates, truncation or padding; special tokens in a text are text."""

    def __init__(self, tokenizer: Any) -> None:
        """Raises InvalidJob for a tokenizer without a backend."""
        self._backend = copy.deepcopy(backend_of(tokenizer))
        self._backend.no_truncation()
        self._backend.no_padding()
        self._backend.post_processor = processors.ByteLevel(trim_offsets=False)  # adds nothing, moves no place
        self._backend.encode_special_tokens = True
        pieces = token_bytes(tokenizer)
        self._adds_space = num_leading_spaces(self._encode("a").ids, pieces) > 0
        self._adds_second_space = num_leading_spaces(self._encode(" a").ids, pieces) > 1

    def at_start(self, text: str, is_open: bool) -> Pieces:
        """Of a row's first text, with the space that some tokenizers put before it.

        is_open: the text will go on. White space at its end is then cut as it is before a word: many tokenizers take
        the last space of several for the word's.
        """
        sequel = self._encode(text + _SEQUEL).before(len(text)) if is_open and text[-1:].isspace() else None
        return sequel or self._encode(text)

    def inside(self, text: str, is_open: bool) -> Pieces:
        """Of text after other text: without that space, but where no anchor can keep it away."""
        has_space = text.startswith(" ")
        if not self._adds_space or (has_space and not self._adds_second_space):
            return self.at_start(text, is_open)
        if has_space and len(text) > 1:
            return self._with_added_space(text, is_open)
        anchored = (self.at_start(anchor + text, is_open).after(len(anchor)) for anchor in _ANCHORS)
        return next((pieces for pieces in anchored if pieces is not None), None) or self.at_start(text, is_open)

    def _with_added_space(self, text: str, is_open: bool) -> Pieces:
        """The space that is added stands for the text's own."""
        ids, starts, ends = self.at_start(text[1:], is_open)
        return Pieces(ids, [0, *(start + 1 for start in starts[1:])], [end + 1 for end in ends])

    def _encode(self, text: str) -> Pieces:
        encoding = self._backend.encode(text, add_special_tokens=False)
        starts, ends = zip(*encoding.offsets, strict=True) if encoding.ids else ((), ())
        return Pieces(encoding.ids, list(starts), list(ends))
