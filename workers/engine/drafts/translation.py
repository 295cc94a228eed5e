"""A row in the tokens of another tokenizer, by text, kept up as the row grows; and drafts in them brought back.

Universal assisted generation (Timor et al. 2025, arXiv 2502.05202): only a look-behind window is re-encoded, and joined
to what was there at the longest diagonal. Tokens are compared together with their places in the text, so text that
repeats itself is not joined at a wrong place. Whatever a translation does, outputs stay the target's: a bad one only
costs acceptance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workers.engine.drafts.plain_text import PlainEncoder, boundary
from workers.engine.drafts.realign import num_common, realign
from workers.engine.drafts.source_text import SourceText
from workers.engine.drafts.token_bytes import backend_of, num_leading_spaces, token_bytes
from workers.engine.drafts.vocabulary import NO_TOKEN, carried_tokens

LOOK_BEHIND = 10


class Translator:
    """From a source tokenizer's tokens to a dest tokenizer's.

    look_behind: how many tokens before a change are re-encoded with it, at least one. first_space: what a row's first
    text begins with in the source's tokens, though the text does not. Raises InvalidJob for a tokenizer without a
    backend.
    """

    def __init__(self, source_tokenizer: Any, dest_tokenizer: Any, look_behind: int = LOOK_BEHIND) -> None:
        self.look_behind = look_behind
        self.carried = carried_tokens(source_tokenizer, dest_tokenizer)
        self.encoder = PlainEncoder(dest_tokenizer)
        self._pieces = token_bytes(source_tokenizer)
        first = backend_of(source_tokenizer).encode("a", add_special_tokens=False).ids
        self.first_space = b" " * num_leading_spaces(first, self._pieces)

    def piece(self, token: int) -> bytes | None:
        """What a source token stands for; None for a special token and for an id that no token has."""
        return self._pieces[token] if 0 <= token < len(self._pieces) else None


class TranslatedRow:
    """One row.

    ids: its tokens in the dest tokenizer. Special tokens that the dest has too are carried over, others are left out.
    source: its text since the last special token that was carried over.
    """

    def __init__(self, translator: Translator, source_ids: Sequence[int]) -> None:
        self.ids: list[int] = []
        self.source = SourceText()
        self._has_text = False
        self._translator = translator
        self._first_space = translator.first_space
        self._ends: list[int] = []
        self._begin = 0
        self._is_first = True
        self._num_encoded = 0
        self.extend(source_ids)

    def extend(self, source_ids: Sequence[int]) -> int:
        """The row has gone on. Returns how many leading ids are as before: what was cached for them stays valid."""
        unchanged = len(self.ids)
        for token in source_ids:
            piece = self._translator.piece(token)
            if piece is not None:
                self.source.read(token, piece.removeprefix(self._first_space))
                self._first_space = b""
                continue
            self.source.interrupt()
            if token in self._translator.carried:
                unchanged = min(unchanged, self._encode_text(is_open=False))
                self._carry(self._translator.carried[token])
        return min(unchanged, self._encode_text(is_open=True))

    def _carry(self, token: int) -> None:
        self._replace(len(self.ids), [token], [0])
        self.source.restart()
        self._is_first = not self._has_text
        self._begin, self._num_encoded = len(self.ids), 0

    def _encode_text(self, is_open: bool) -> int:
        """Takes in what the text has gained, or that it has ended. Returns how many ids are as before."""
        text = self.source.text
        if len(text) == self._num_encoded and (is_open or not text[-1:].isspace()):
            return len(self.ids)
        self._num_encoded, self._has_text = len(text), True
        return self._encode_from(max(self._begin, len(self.ids) - self._translator.look_behind), is_open)

    def _encode_from(self, first: int, is_open: bool) -> int:
        encoder, text = self._translator.encoder, self.source.text
        if first == self._begin:
            encode = encoder.at_start if self._is_first else encoder.inside
            pieces = encode(text, is_open)
            return self._replace(first, pieces.ids, pieces.ends)
        place = self._ends[first - 1]
        ids, _, ends = encoder.inside(text[place:], is_open).moved(place)
        old = list(zip(self.ids[first:], self._ends[first:], strict=True))
        joined = realign(old, list(zip(ids, ends, strict=True)))
        if joined is None:
            return self._encode_from(self._begin, is_open)
        kept, new = joined
        return self._replace(first + kept, ids[new:], ends[new:])

    def _replace(self, first: int, ids: list[int], ends: list[int]) -> int:
        """Puts other tokens in place of those from `first` on. Returns how many ids are as before."""
        unchanged = first + num_common(self.ids[first:], ids)
        self.ids[first:], self._ends[first:] = ids, ends
        return unchanged


@dataclass(slots=True)
class _Run:
    """Drafted text, which may end inside a character. special: the target's token before it, NO_TOKEN for the first."""

    special: int = NO_TOKEN
    data: bytes = b""
    is_open: bool = True

    def text(self) -> str:
        """What comes before the first character that is not whole."""
        try:
            return self.data.decode()
        except UnicodeDecodeError as error:
            return self.data[: error.start].decode()

    def is_whole(self) -> bool:
        return len(self.text().encode()) == len(self.data)


class Bridge:
    """Both ways between a target's tokenizer and a draft's."""

    def __init__(self, target_tokenizer: Any, draft_tokenizer: Any, look_behind: int = LOOK_BEHIND) -> None:
        """Raises InvalidJob for a tokenizer without a backend."""
        self._there = Translator(target_tokenizer, draft_tokenizer, look_behind)
        self._back = Translator(draft_tokenizer, target_tokenizer, look_behind)

    def row(self, target_ids: Sequence[int]) -> TranslatedRow:
        """A target row for the draft."""
        return TranslatedRow(self._there, target_ids)

    def back(self, row: TranslatedRow, drafted_ids: Sequence[int]) -> list[int]:
        """The target's tokens for what the draft puts after row.ids.

        They go on after the row's last target token, which may end inside a character or a word; the row itself is
        never changed. Empty where the draft contradicts the row's last bytes. They end at a special token that the
        target lacks, and before a character that is not whole.
        """
        first, *others = self._runs(drafted_ids)
        target_ids = self._after_row(row.source, first)
        if target_ids is None:
            return []
        for run in others:
            target_ids += [run.special, *self._back.encoder.inside(run.text(), run.is_open).ids]
        return target_ids

    def _runs(self, drafted_ids: Sequence[int]) -> list[_Run]:
        runs = [_Run()]
        for token in drafted_ids:
            piece = self._back.piece(token)
            if piece is not None:
                runs[-1].data += piece
                continue
            runs[-1].is_open = False
            if token not in self._back.carried or not runs[-1].is_whole():
                break
            runs.append(_Run(self._back.carried[token]))
        return runs

    def _after_row(self, source: SourceText, run: _Run) -> list[int] | None:
        """The target's tokens for text after the row, whose incomplete character it must complete; None if not."""
        text, begin = run.text(), source.place_back(self._back.look_behind)
        pieces = self._back.encoder.inside(source.text[begin:] + text, run.is_open)
        first = boundary(pieces.starts, pieces.ends, len(source.text) - begin)
        if first is None:  # the row ends inside a token, so that the text is tokenized by itself
            ids = self._back.encoder.inside(text, run.is_open).ids
        else:
            ids = pieces.ids[first:]
        num_pending = len(source.pending)
        return ids[num_pending:] if ids[:num_pending] == source.pending else None
