"""What a draft source that needs no model says of one row."""

from typing import NamedTuple


class Guess(NamedTuple):
    """One row's drafted tokens; none where the source has no guess.

    kind: how sure the source is, as a small number of its own (the length of a match, say). Acceptance is estimated for
    each kind apart.
    """

    tokens: list[int]
    kind: int = 0


NO_GUESS = Guess([])
