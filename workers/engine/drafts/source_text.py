"""The text of a row's tokens as it grows, and where its tokens end in it."""

import codecs


class SourceText:
    """Text since the last special token that was carried over.

    text: of the tokens up to the last that ends a character. pending: the tokens after it, which have a part of a
    character that is still incomplete. Places are counted in characters of the text.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """After a special token that has its like in the other tokenizer: a new text."""
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._cut()

    def read(self, token: int, piece: bytes) -> None:
        self.pending.append(token)
        self._read += self._decoder.decode(piece)
        if not self._decoder.getstate()[0]:
            self.text += self._read
            self._ends.append(len(self.text))
            self._release()

    def interrupt(self) -> None:
        """At a special token: an incomplete character stays so, and the look-behind begins after the token."""
        self.text += self._read + self._decoder.decode(b"", final=True)
        self._decoder.reset()
        self._cut()

    def place_back(self, num_tokens: int) -> int:
        """Where the last so many tokens begin, or those after the last special token if they are fewer."""
        return self._ends[-num_tokens - 1] if len(self._ends) > num_tokens else self._ends[0]

    def _cut(self) -> None:
        self._ends = [len(self.text)]
        self._release()

    def _release(self) -> None:
        self.pending: list[int] = []
        self._read = ""
