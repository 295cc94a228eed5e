"""What the engine asks of a draft source."""

from collections.abc import Sequence
from typing import Protocol


class DraftSource(Protocol):
    """Guesses how rows go on. A guess costs or saves time; it never changes an output."""

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        """A new row begins in the slot: its prompt and first generated token. The slot's old row is forgotten."""
        ...

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        """The slot's row has gone on with these tokens."""
        ...

    def propose(self, limits: Sequence[int]) -> list[list[int]]:
        """Drafted tokens of each slot, at most limits[slot] of them; none where the source has no guess."""
        ...
