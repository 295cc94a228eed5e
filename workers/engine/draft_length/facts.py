"""What a round was, for the controller to learn from."""

from collections.abc import Sequence
from typing import NamedTuple


class RoundFacts(NamedTuple):
    """One round over B slots; free slots have 0 and no tokens everywhere.

    source: the draft source that was asked, also where it drafted nothing.
    k: drafted positions in the window; 0 in a plain step.
    num_drafted, num_accepted: (B,) tokens of each row in the window, and of them the target's own, before a stop or a
        limit cuts the row.
    kinds: (B,) the kind of each row's guess.
    seconds: the whole round, drafting, verifying and committing; draft_seconds: of it, drafting (0 for free sources).
    committed: (B,) the tokens that each row went on with, num_accepted + 1 before cuts. With them the guesses of a free
        source are also judged at places that no window covered; a source with a model needs none.
    """

    source: str
    k: int
    num_drafted: Sequence[int]
    kinds: Sequence[int]
    num_accepted: Sequence[int]
    seconds: float
    draft_seconds: float = 0.0
    committed: Sequence[Sequence[int]] = ()
