"""Chooses the number k of drafted tokens of each round: the one that promises most committed tokens a second.

goodput(k) = sum over rows of (1 + expected accepted tokens) / (step seconds(k) + drafting seconds(k)), as in SmartSpec
(Liu et al. 2024, arXiv 2406.14066), with k from a ladder and one window for all rows.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from workers.engine.draft_length.acceptance import Acceptance
from workers.engine.draft_length.choice import Choice, Option
from workers.engine.draft_length.facts import RoundFacts
from workers.engine.draft_length.judging import Judge
from workers.engine.draft_length.step_times import StepTimes
from workers.engine.draft_length.tunables import Tunables
from workers.engine.drafts.guess import Guess

# (B,) a row's guess as far as it is known: its kind (None before it is made), and its most tokens.
Prospects = Sequence[tuple[int | None, int]]


class Controller:
    """For one engine of B slots; the same calls give the same choices.

    A round is `ask`, for a free source that drafted also `settle`, and `observe`. With one rung the ladder is that k,
    always.
    """

    def __init__(self, ladder: Sequence[int], batch_size: int, tunables: Tunables = Tunables()) -> None:  # noqa: B008
        """Raises ValueError for a ladder that is empty or has negative rungs."""
        if not ladder or min(ladder) < 0:
            raise ValueError(f"a ladder of draft lengths has one or more numbers from 0 up, not {list(ladder)}")
        self.ladder = sorted(set(ladder))
        self._tunables, self._batch_size = tunables, batch_size
        self._acceptance = Acceptance(self.ladder[-1], batch_size, tunables)
        self._judge = Judge(batch_size)
        self._times = StepTimes()
        self._choices: dict[str, Choice] = {}
        self._paid = 0  # the k of a round's drafting, where that costs time; the window's may be less
        self._weights = [1.0] * batch_size
        self._live: set[int] = set()
        self._num_started = 0
        self._rounds: Counter[int] = Counter()

    def warm_up(self, seconds_by_k: Mapping[int, float]) -> None:
        """Typical seconds of a step without drafting, for every rung. Raises ValueError where one is missing."""
        self._times.warm_up(seconds_by_k)
        if not self._times.covers(self.ladder):
            raise ValueError(f"step times are needed for k = {self.ladder}, not only {sorted(seconds_by_k)}")

    def start(self, slot: int) -> None:
        """A new row in the slot."""
        self._acceptance.start(slot)
        self._judge.start(slot)
        self._live.add(slot)
        self._num_started += 1
        if self._num_started % max(1, self._batch_size // 2) == 0:
            for choice in self._choices.values():
                choice.exploration.hurry()

    def finish(self, slot: int) -> None:
        """The slot's row has ended."""
        self._live.discard(slot)

    def ask(self, source: str, limits: Sequence[int], is_free: bool) -> int:
        """The k to draft with; 0: the source is not to be asked in this round.

        limits: (B,) drafted tokens that each row could still use up to its end, 0 for free slots. A free source always
        drafts what can be used: it is judged by what it says, verified or not. Raises KeyError before `warm_up`, unless
        the ladder has one rung.
        """
        self._weights = self._weigh(limits)
        if is_free:
            self._judge.begin_free()
            self._paid = 0
            return self._useful_rungs(max(limits, default=0))[-1]
        self._paid = self._choose(source, [(None, limit) for limit in limits], is_free)
        self._judge.begin_costly([min(self._paid, limit) for limit in limits])
        return self._paid

    def settle(self, source: str, guesses: Sequence[Guess]) -> int:
        """The k to verify a free source's guesses with, to which they are then cut; 0: a plain step."""
        self._judge.take_guesses(guesses)
        return self._choose(source, [(guess.kind, len(guess.tokens)) for guess in guesses], is_free=True)

    def observe(self, facts: RoundFacts) -> None:
        """Learns from the round that was asked for last."""
        self._rounds[facts.k] += 1
        self._times.observe(facts.k, facts.seconds - facts.draft_seconds)
        if self._paid and facts.draft_seconds > 0:
            self._times.observe_draft(facts.source, self._paid, facts.draft_seconds)
        for slot in range(self._batch_size):
            for verdict in self._judge.verdicts(facts, slot):
                self._acceptance.add(slot, *verdict)
            if facts.committed and not facts.committed[slot]:
                self._live.discard(slot)
        self._acceptance.end_round()
        self._choice(facts.source).exploration.tick(self._paid or facts.k, facts.seconds)

    def report(self) -> dict[str, Any]:
        """Rounds and present step times by k, acceptance by source, kind and position, and decisions, for JSON."""
        return {
            "ladder": self.ladder,
            "rounds": {str(k): self._rounds[k] for k in sorted(self._rounds)},
            **self._times.report(),
            "acceptance": self._acceptance.report(),
            "decisions": {source: choice.report() for source, choice in sorted(self._choices.items())},
        }

    def _choose(self, source: str, prospects: Prospects, is_free: bool) -> int:
        if len(self.ladder) == 1:
            return self.ladder[0]
        rungs = self._useful_rungs(max((limit for _, limit in prospects), default=0))
        tokens = self._expected_tokens(source, prospects, rungs, self._tunables.draft_worth if is_free else 1.0)
        drafting = [0.0 if is_free else self._times.draft_seconds(source, k) for k in rungs]
        choice = self._choice(source)
        k, is_probe = choice.take(
            [Option(k, tokens[place], self._times.seconds(k) + drafting[place]) for place, k in enumerate(rungs)]
        )
        if is_probe and not is_free and choice.k == rungs[0]:
            self._acceptance.fade(source, first=choice.k)
        return k

    def _expected_tokens(self, source: str, prospects: Prospects, rungs: Sequence[int], worth: float) -> list[float]:
        """What rounds with these k bring, in tokens of plain steps; worth: of an accepted one, likewise."""
        plain = sum(self._weights[slot] for slot in self._live) or 1.0
        drafted = [0.0] * len(rungs)
        for slot, (kind, limit) in enumerate(prospects):
            if limit:
                expected = self._acceptance.expected(slot, source, kind, min(limit, rungs[-1]))
                for place, k in enumerate(rungs):
                    drafted[place] += self._weights[slot] * expected[k if k < limit else -1]
        return [plain + worth * tokens for tokens in drafted]

    def _weigh(self, limits: Sequence[int]) -> list[float]:
        """What a token of each row is worth.

        The same, as long as other rows wait for its slot. After that the row that ends last decides when all is done,
        and nothing is won where a row that has less before it ends sooner.
        """
        longest = max(limits, default=0)
        if len(self._live) >= self._batch_size or not longest:
            return [1.0] * self._batch_size
        return [(limit / longest) ** self._tunables.tail_power for limit in limits]

    def _useful_rungs(self, limit: int) -> list[int]:
        """Up to the first that holds limit tokens."""
        return [k for below, k in zip([-1, *self.ladder], self.ladder, strict=False) if below < limit]

    def _choice(self, source: str) -> Choice:
        if source not in self._choices:
            self._choices[source] = Choice(self._tunables)
        return self._choices[source]
