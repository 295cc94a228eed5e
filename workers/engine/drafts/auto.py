"""Several draft sources on trial: each drafts for the first rows in turn, and the one with the best goodput is kept."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from workers.engine.draft_length import RoundFacts
from workers.engine.drafts.base import DraftRound, Drafts, DraftSource
from workers.engine.runner import ModelRunner
from workers.engine.warm_up import PlannedShapes

# Sources take turns, so that a machine's drift and the rows' beginnings meet all alike.
_ROUNDS_A_TURN, _NUM_TURNS = 8, 3
_MOST_MEDIANS = 2.0  # a round that took longer than so many typical ones was disturbed by something else


class AutoDraft(DraftSource):
    """The draft source `auto`. All sources on trial follow the rows; once one is chosen the others are forgotten."""

    def __init__(self, sources: Sequence[DraftSource]) -> None:
        self._sources = list(sources)
        self._rounds: dict[str, list[RoundFacts]] = defaultdict(list)
        self._num_rounds = 0

    @property
    def name(self) -> str:
        return self._current.name

    @property
    def is_free(self) -> bool:
        return self._current.is_free

    def begin(self, runner: ModelRunner, max_length: int) -> None:
        for source in self._sources:
            source.begin(runner, max_length)

    def planned_shapes(self) -> list[PlannedShapes]:
        return [shapes for source in self._sources for shapes in source.planned_shapes()]

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        for source in self._sources:
            source.start(slot, tokens)

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        for source in self._sources:
            source.extend(slot, tokens)

    def finish(self, slot: int) -> None:
        for source in self._sources:
            source.finish(slot)

    def propose(self, asked: DraftRound) -> Drafts:
        return self._current.propose(asked)

    def observe(self, facts: RoundFacts) -> None:
        if len(self._sources) == 1:
            return
        self._rounds[facts.source].append(facts)
        self._num_rounds += 1
        if self._num_rounds == _ROUNDS_A_TURN * _NUM_TURNS * len(self._sources):
            self._sources = [max(self._sources, key=lambda source: goodput(self._rounds[source.name]))]

    def report(self) -> dict[str, Any]:
        """Goodput of each source that was tried, and the one that is kept; for JSON."""
        found = {name: round(goodput(rounds), 2) for name, rounds in sorted(self._rounds.items())}
        return {"tried": found, "kept": self.name if len(self._sources) == 1 else None}

    @property
    def _current(self) -> DraftSource:
        return self._sources[self._num_rounds // _ROUNDS_A_TURN % len(self._sources)]


def goodput(rounds: Sequence[RoundFacts]) -> float:
    """Committed tokens a second of a row, over rounds that nothing else disturbed."""
    typical = statistics.median(facts.seconds for facts in rounds)
    kept = [facts for facts in rounds if facts.seconds <= _MOST_MEDIANS * typical]
    num_tokens = [sum(map(len, facts.committed)) / sum(map(bool, facts.committed)) for facts in kept]
    return sum(num_tokens) / sum(facts.seconds for facts in kept)
