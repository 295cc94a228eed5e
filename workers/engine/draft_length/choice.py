"""Which window one source gets: the best, unless the last is about as good or another has to be tried."""

from collections.abc import Sequence
from typing import NamedTuple

from workers.engine.draft_length.exploration import Exploration
from workers.engine.draft_length.tunables import Tunables


class Option(NamedTuple):
    """What a round with k drafted positions is expected to bring, over all rows, and to take."""

    k: int
    tokens: float
    seconds: float

    @property
    def goodput(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


class Choice:
    """k: the one chosen last, probes aside."""

    def __init__(self, tunables: Tunables) -> None:
        self._tunables = tunables
        self.exploration = Exploration(tunables)
        self.k = 0
        self._was_probe = False
        self._num_changes = 0
        self._num_switch_offs = 0

    def take(self, options: Sequence[Option]) -> tuple[int, bool]:
        """(k, whether it is a probe). options: one or more, by rising k."""
        best = self._steady(options)
        self._settle_on(best.k, len(options) > 1)
        probe = self._probe(best, options)
        self._was_probe = probe is not None
        return (best.k if probe is None else probe), self._was_probe

    def report(self) -> dict[str, float]:
        """How often the choice changed, went to 0 with drafts at hand, and was set aside for a probe; and its loss."""
        return {
            "changes": self._num_changes,
            "switch_offs": self._num_switch_offs,
            "probes": self.exploration.num_probes,
            "probe_seconds": round(self.exploration.lost_seconds, 6),
        }

    def _steady(self, options: Sequence[Option]) -> Option:
        best = max(options, key=lambda option: (option.goodput, -option.k))
        last = next((option for option in options if option.k == self.k), best)
        return best if best.goodput > last.goodput * (1 + self._tunables.margin) else last

    def _settle_on(self, k: int, has_drafts: bool) -> None:
        self._num_changes += k != self.k
        self._num_switch_offs += has_drafts and k == 0 < self.k
        if self._was_probe and k != self.k:
            self.exploration.hurry()
        self.k = k

    def _probe(self, best: Option, options: Sequence[Option]) -> int | None:
        place = options.index(best)
        neighbours = {
            option.k: option for option in (*options[max(0, place - 1) : place], *options[place + 1 : place + 2])
        }
        stale = self.exploration.stalest(list(neighbours))
        if stale is None:
            return None
        loss = max(0.0, neighbours[stale].seconds - neighbours[stale].tokens / best.goodput)
        return stale if self.exploration.afford(loss, options[0].seconds) else None
