"""No drafts: plain decoding."""

from collections.abc import Sequence

from workers.engine.drafts.guess import NO_GUESS, Guess


class NoDraft:
    """The draft source `none`."""

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        """Nothing to remember."""

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        """Nothing to remember."""

    def finish(self, slot: int) -> None:
        """Nothing to remember."""

    def guess(self, limits: Sequence[int]) -> list[Guess]:
        return [NO_GUESS] * len(limits)
