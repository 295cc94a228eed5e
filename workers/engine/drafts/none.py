"""No drafts: plain decoding."""

from collections.abc import Sequence


class NoDraft:
    """The draft source `none`."""

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        return

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        return

    def propose(self, limits: Sequence[int]) -> list[list[int]]:
        return [[] for _ in limits]
