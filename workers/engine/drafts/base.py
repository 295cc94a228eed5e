"""What the engine asks of a draft source."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from workers.engine.constraints import Context
from workers.engine.draft_length.facts import RoundFacts
from workers.engine.drafts.guess import NO_GUESS, Guess
from workers.engine.runner import ModelRunner
from workers.engine.sampling import BatchSampling, Probabilities
from workers.engine.warm_up import PlannedShapes


@dataclass(frozen=True, slots=True)
class DraftRound:
    """What a source is told of a round.

    limits: (B,) drafted tokens that each slot can use, at most k; 0 for free slots. sampling: of the slots.
    generated_index: (B, k + 1), of the token that each position of the window draws. noise: (B, k + 1, V), what drafted
    tokens are drawn with; None where all rows are greedy. keeps_probs: whether `Drafts.probs` is asked for.
    context: makes a Context for tokens that follow the given drafted ones; None where no row is constrained.
    settle: for sources whose guesses cost nothing, the k to verify with, once the guesses are known.
    """

    k: int
    limits: list[int]
    sampling: BatchSampling
    generated_index: Tensor
    noise: Tensor | None
    keeps_probs: bool
    context: Callable[[Tensor], Context] | None
    settle: Callable[[Sequence[Guess]], int]

    def with_limits(self, limits: list[int]) -> "DraftRound":
        return replace(self, limits=limits)


class Drafts(NamedTuple):
    """Drafted tokens of a round: tokens (B, k) on the device, of which the first num_drafted (B,) of each row count.

    kinds: (B,), as in Guess. probs: (B, k, V) that tokens were drawn from; None where each was certain.
    """

    tokens: Tensor
    num_drafted: list[int]
    kinds: list[int]
    probs: Probabilities | None = None

    @classmethod
    def of_guesses(cls, guesses: Sequence[Guess], k: int, device: torch.device) -> "Drafts":
        """Each guess's first k tokens, in one copy."""
        drafted = [guess.tokens[:k] for guess in guesses]
        padded = [[*tokens, *[0] * (k - len(tokens))] for tokens in drafted]
        tokens = torch.tensor(padded, dtype=torch.int64).view(len(guesses), k).to(device)
        return cls(tokens, [len(tokens) for tokens in drafted], [guess.kind for guess in guesses])

    @classmethod
    def nothing(cls, num_slots: int, device: torch.device) -> "Drafts":
        return cls.of_guesses([NO_GUESS] * num_slots, 0, device)


class HostSource(Protocol):
    """Guesses how rows go on from their tokens alone, without a model. A guess never changes an output."""

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        """A new row begins in the slot: its prompt and first generated token. The slot's old row is forgotten."""
        ...

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        """The slot's row has gone on with these tokens."""
        ...

    def finish(self, slot: int) -> None:
        """The slot's row has ended, after its last `extend`."""
        ...

    def guess(self, limits: Sequence[int]) -> list[Guess]:
        """For each slot at most limits[slot] tokens; NO_GUESS where that is 0."""
        ...


class DraftSource(Protocol):
    """Guesses how rows go on. A guess costs or saves time; it never changes an output.

    name: what acceptance is counted under. is_free: whether a guess costs no forward, so that k can be chosen after it.
    """

    @property
    def name(self) -> str: ...

    @property
    def is_free(self) -> bool: ...

    def begin(self, runner: ModelRunner, max_length: int) -> None:
        """Rows of at most max_length tokens are about to be generated with the target's runner; no slot has one."""
        ...

    def planned_shapes(self) -> Sequence[PlannedShapes]:
        """What a warm-up goes through once begun: none of sources without a model."""
        return ()

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        """As of a HostSource; so are extend and finish."""
        ...

    def extend(self, slot: int, tokens: Sequence[int]) -> None: ...

    def finish(self, slot: int) -> None: ...

    def propose(self, asked: DraftRound) -> Drafts: ...

    def observe(self, facts: RoundFacts) -> None:
        """What became of a round. Most sources learn nothing from it."""
        return

    def report(self) -> dict[str, Any]:
        """What the source has to say of itself, for JSON."""
        return {}


class HostDraft(DraftSource):
    """A HostSource as a DraftSource: guesses at full length, then cut to the k that they are worth."""

    is_free = True

    def __init__(self, name: str, source: HostSource, device: torch.device) -> None:
        self._name, self._source, self._device = name, source, device

    @property
    def name(self) -> str:
        return self._name

    def begin(self, runner: ModelRunner, max_length: int) -> None:
        """Nothing: a source on the host keeps nothing of the target's."""

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        self._source.start(slot, tokens)

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        self._source.extend(slot, tokens)

    def finish(self, slot: int) -> None:
        self._source.finish(slot)

    def propose(self, asked: DraftRound) -> Drafts:
        guesses = self._source.guess(asked.limits)
        return Drafts.of_guesses(guesses, asked.settle(guesses), self._device)
