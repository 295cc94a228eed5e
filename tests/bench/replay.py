"""Replays recorded acceptance against measured step times: what a choice of draft lengths would take, free of noise.

A trace has, for each place in a row's output, the guess that a source has there and how much of it is right. Since
drafts never change an output, any choice of draft lengths can be played on the same traces. Times are read from a table
of k, so that two choices differ by their decisions alone; what the controller sees of them may jitter and drift.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from workers.engine.draft_length import RoundFacts
from workers.engine.drafts.base import HostSource
from workers.engine.drafts.guess import Guess

WRONG = -1  # a token that no row has: rows of a replay are numbered by place


class Spot(NamedTuple):
    """The guess at one place of a row: how many tokens it has, how many are right before the first wrong, its kind."""

    num_available: int
    num_right: int
    kind: int = 0


Trace = Sequence[Spot]  # one spot for every token after the first, which the prefill brings


class Policy(Protocol):
    """What chooses draft lengths: the controller, or a fixed rule."""

    def start(self, slot: int) -> None: ...
    def finish(self, slot: int) -> None: ...
    def ask(self, source: str, limits: Sequence[int], is_free: bool) -> int: ...
    def settle(self, source: str, guesses: Sequence[Guess]) -> int: ...
    def observe(self, facts: RoundFacts) -> None: ...


@dataclass
class FixedLength:
    """Always k, but plain steps where nobody has a guess. k = 0 is plain decoding."""

    k: int

    def start(self, slot: int) -> None:
        return

    def finish(self, slot: int) -> None:
        return

    def ask(self, source: str, limits: Sequence[int], is_free: bool) -> int:
        return self.k if any(limits) else 0

    def settle(self, source: str, guesses: Sequence[Guess]) -> int:
        return self.k if any(guess.tokens for guess in guesses) else 0

    def observe(self, facts: RoundFacts) -> None:
        return


@dataclass
class Replayed:
    """What a policy made of some traces. seconds: true ones; rounds: how many ran with each k."""

    seconds: float = 0.0
    num_tokens: int = 0
    rounds: Counter[int] = field(default_factory=Counter)


class Clock(NamedTuple):
    """Seconds by k of a round's verification, and of drafting k tokens for all rows; draft_seconds None: a free source.

    speed(round): a factor on both that is true, such as a drift; jitter(round): one that only measurements have.
    """

    step_seconds: Mapping[int, float]
    draft_seconds: Mapping[int, float] | None = None
    speed: Callable[[int], float] = lambda _: 1.0
    jitter: Callable[[int], float] = lambda _: 1.0


@dataclass
class ReplayedRow:
    """A row in its slot, at a place of its trace."""

    trace: Trace
    place: int = 0

    @property
    def limit(self) -> int:
        """Tokens that the row could use of a draft; the target brings one itself."""
        return len(self.trace) - self.place - 1

    def guess(self, limit: int) -> Guess:
        spot = self.trace[self.place]
        length = min(spot.num_available, limit)
        right = min(spot.num_right, length)
        return Guess([self.place + index if index < right else WRONG for index in range(length)], spot.kind)

    def num_right(self, num_drafted: int) -> int:
        return min(num_drafted, self.trace[self.place].num_right)

    def advance(self, num_tokens: int) -> list[int]:
        """The tokens that the row goes on with."""
        tokens = list(range(self.place, self.place + num_tokens))
        self.place += num_tokens
        return tokens


def replay(traces: Sequence[Trace], policy: Policy, clock: Clock, batch_size: int, source: str = "replay") -> Replayed:
    """Plays all traces through batch_size slots, refilled as rows end."""
    result, waiting = Replayed(), iter(traces)
    slots = [_next_row(policy, waiting, slot) for slot in range(batch_size)]
    while any(slots):
        facts = _run_round(slots, policy, clock, source, sum(result.rounds.values()))
        jitter = clock.jitter(sum(result.rounds.values()))
        policy.observe(facts._replace(seconds=facts.seconds * jitter, draft_seconds=facts.draft_seconds * jitter))
        result.seconds += facts.seconds
        result.num_tokens += sum(len(tokens) for tokens in facts.committed)
        result.rounds[facts.k] += 1
        for slot, row in enumerate(slots):
            if row and row.limit < 0:
                policy.finish(slot)
                slots[slot] = _next_row(policy, waiting, slot)
    return result


def trace_row(source: HostSource, prompt: Sequence[int], completion: Sequence[int], max_length: int) -> list[Spot]:
    """What a source guesses at each place of a known completion, with slot 0 for the row; it must have that slot."""
    source.start(0, [*prompt, completion[0]])
    spots = []
    for place in range(1, len(completion)):
        guess = source.guess([max_length])[0]
        pairs = zip(guess.tokens, completion[place:], strict=False)
        num_wrong_at = next((index for index, (ours, its) in enumerate(pairs) if ours != its), None)
        num_right = min(len(guess.tokens), len(completion) - place) if num_wrong_at is None else num_wrong_at
        spots.append(Spot(len(guess.tokens), num_right, guess.kind))
        source.extend(0, [completion[place]])
    source.finish(0)
    return spots


def _next_row(policy: Policy, waiting: Iterator[Trace], slot: int) -> ReplayedRow | None:
    trace = next((trace for trace in waiting if trace), None)
    if trace is None:
        return None
    policy.start(slot)
    return ReplayedRow(trace)


def _run_round(
    slots: Sequence[ReplayedRow | None], policy: Policy, clock: Clock, source: str, number: int
) -> RoundFacts:
    is_free = clock.draft_seconds is None
    k = policy.ask(source, [row.limit if row else 0 for row in slots], is_free)
    guesses = [row.guess(min(k, row.limit)) if row else Guess([]) for row in slots]
    draft_seconds = clock.draft_seconds[k] * clock.speed(number) if clock.draft_seconds is not None and k else 0.0
    if is_free and k:
        k = policy.settle(source, guesses)
    num_drafted = [min(k, len(guess.tokens)) for guess in guesses]
    num_accepted = [row.num_right(n) if row else 0 for row, n in zip(slots, num_drafted, strict=True)]
    committed = [row.advance(n + 1) if row else [] for row, n in zip(slots, num_accepted, strict=True)]
    seconds = clock.step_seconds[k] * clock.speed(number) + draft_seconds
    kinds = [guess.kind for guess in guesses]
    return RoundFacts(source, k, num_drafted, kinds, num_accepted, seconds, draft_seconds, committed)
