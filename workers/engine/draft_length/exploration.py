"""When to run another window than the best, to learn what it would bring: seldom, and at a bounded loss."""

from workers.engine.draft_length.tunables import Tunables


class Exploration:
    """Intervals that grow while nothing changes, inside a budget of lost time.

    The loss is an estimate: the seconds of the other window, less those in which the best one would have brought as
    many tokens.
    """

    def __init__(self, tunables: Tunables) -> None:
        self._tunables = tunables
        self._interval = tunables.min_interval
        self._last_run: dict[int, int] = {}
        self._num_rounds = 0
        self.elapsed_seconds = 0.0
        self.lost_seconds = 0.0
        self.num_probes = 0

    def tick(self, k: int, seconds: float) -> None:
        """A round ran with this k."""
        self._num_rounds += 1
        self._last_run[k] = self._num_rounds
        self.elapsed_seconds += seconds

    def stalest(self, neighbours: list[int]) -> int | None:
        """The neighbour that has not run for longest, if that is an interval or more."""
        stale = min(neighbours, key=lambda k: self._last_run.get(k, 0), default=None)
        if stale is None or self._num_rounds - self._last_run.get(stale, 0) < self._interval:
            return None
        return stale

    def afford(self, loss_seconds: float, plain_seconds: float) -> bool:
        """Whether the budget has this much left; if so, it is spent."""
        budget = self._tunables.explore_share * self.elapsed_seconds + self._tunables.explore_credit * plain_seconds
        if self.lost_seconds + loss_seconds > budget:
            return False
        self.lost_seconds += loss_seconds
        self.num_probes += 1
        self._interval = min(2 * self._interval, self._tunables.max_interval)
        return True

    def hurry(self) -> None:
        """Something has changed, the best window or the rows: neighbours are tried soon again."""
        self._interval = self._tunables.min_interval
