"""What a round says of the guesses that were made, verified or not."""

from collections.abc import Iterator, Sequence

from workers.engine.draft_length.facts import RoundFacts
from workers.engine.draft_length.watch import Verdict, Watch
from workers.engine.drafts.guess import Guess


class Judge:
    """Follows one round after another: what was asked for, what was guessed, what came of it."""

    def __init__(self, batch_size: int) -> None:
        self._watch = Watch(batch_size)
        self._guesses: Sequence[Guess] = ()
        self._num_wanted: Sequence[int] | None = None

    def start(self, slot: int) -> None:
        """A new row in the slot."""
        self._watch.start(slot)

    def begin_free(self) -> None:
        """A round of a source that says how many tokens it has before any is paid for."""
        self._guesses, self._num_wanted = (), None

    def begin_costly(self, num_wanted: Sequence[int]) -> None:
        """A round where so many tokens of each row (B,) are paid for before it is known whether they can be had."""
        self._guesses, self._num_wanted = (), num_wanted

    def take_guesses(self, guesses: Sequence[Guess]) -> None:
        """What a free source said, before it is cut to a window."""
        self._guesses = guesses

    def verdicts(self, facts: RoundFacts, slot: int) -> Iterator[Verdict]:
        """On a slot's guess in its window, beyond it, and on an earlier guess."""
        if self._num_wanted is not None:
            return self._costly(facts, slot, self._num_wanted[slot])
        return self._free(facts, slot)

    def _costly(self, facts: RoundFacts, slot: int, num_wanted: int) -> Iterator[Verdict]:
        """A token that was wanted and not drafted is as good as wrong: it was paid for all the same."""
        if num_wanted:
            num_accepted = facts.num_accepted[slot]
            yield Verdict(facts.source, None, 0, num_accepted, num_accepted < num_wanted)

    def _free(self, facts: RoundFacts, slot: int) -> Iterator[Verdict]:
        tokens = facts.committed[slot] if facts.committed else ()
        num_drafted, num_accepted = facts.num_drafted[slot], facts.num_accepted[slot]
        earlier = self._watch.judge(slot, tokens)
        if earlier:
            yield earlier
        if num_drafted:
            yield Verdict(facts.source, facts.kinds[slot], 0, num_accepted, num_accepted < num_drafted)
        if self._guesses and tokens and num_accepted == num_drafted:
            rest = tokens[num_drafted:]
            beyond = self._watch.take_up(slot, facts.source, self._guesses[slot], num_drafted, rest)
            if beyond:
                yield beyond
