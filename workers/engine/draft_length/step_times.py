"""How long a round takes with each window, on a machine whose speed drifts and jitters."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from workers.engine.draft_length.monotone import monotone

LEVEL_GAIN = 0.25  # choices depend on ratios alone, so the level may follow drift at once
SPREAD_GAIN = 0.1
MIN_SPREAD = 0.05
WARM_UP_VARIANCE = 0.05**2
RATIO_DRIFT_VARIANCE = 0.003**2  # for each time that a k is come back to
MIN_DRAFT_GAIN = 0.1
FIRST_DRAFT_RATIO = math.log(0.25)  # of a step, for a drafted token, until one was timed


class DraftRatio(NamedTuple):
    """Logarithm of a drafted token's time to the level, and how many rounds it is the mean of."""

    mean: float
    num_seen: int


class StepTimes:
    """Logarithms: a level common to all windows, and a ratio to it for each k.

    Every step moves the level, so a window that has not run for long follows the drift of the others. The ratio of a k
    moves only in its first step after another k, as a Kalman filter's state: a machine that slows down while k stays is
    no news of k. Residuals are clipped at three times their running mean, so that single steps of ten times the time
    hardly count. A longer window is never taken to be faster.
    """

    def __init__(self) -> None:
        self._level: float | None = None
        self._ratios: dict[int, float] = {}
        self._variances: dict[int, float] = {}
        self._seconds: dict[int, float] = {}
        self._last_k: int | None = None
        self._spread = MIN_SPREAD
        self._last_level = 0.0  # of the last step alone: what slows a round down slows its drafting down
        self._drafts: dict[str, dict[int, DraftRatio]] = {}

    def warm_up(self, seconds_by_k: Mapping[int, float]) -> None:
        """Seconds of a step without drafting, for each k."""
        self._level = math.log(seconds_by_k[min(seconds_by_k)])
        self._ratios = {k: math.log(seconds_by_k[k]) - self._level for k in sorted(seconds_by_k)}
        self._variances = dict.fromkeys(self._ratios, WARM_UP_VARIANCE)
        self._update_seconds()

    def covers(self, ladder: Sequence[int]) -> bool:
        return set(ladder) <= set(self._ratios)

    def observe(self, k: int, seconds: float) -> None:
        """A step took this long, without its drafting."""
        if k not in self._ratios:
            self._add(k, seconds)
        self._last_level = math.log(max(seconds, 1e-9)) - self._ratios[k]
        residual = self._clipped(self._last_level - self._level_now())
        if self._last_k not in (None, k):
            self._ratios[k] += self._ratio_gain(k) * residual
        self._level = self._level_now() + LEVEL_GAIN * residual
        self._last_k = k
        self._update_seconds()

    def observe_draft(self, source: str, k: int, seconds: float) -> None:
        """Drafting k tokens a row took this long, in the round that was observed last."""
        by_k = self._drafts.setdefault(source, {})
        ratio = math.log(max(seconds, 1e-9) / k) - self._last_level
        old = self._draft_ratio(source, k)
        num_seen = by_k[k].num_seen + 1 if k in by_k else 1
        by_k[k] = DraftRatio(old + max(MIN_DRAFT_GAIN, 1 / (num_seen + 1)) * (ratio - old), num_seen)

    def seconds(self, k: int) -> float:
        return self._seconds[k]

    def draft_seconds(self, source: str, k: int) -> float:
        """Drafting k tokens a row."""
        return k * math.exp(self._level_now() + self._draft_ratio(source, k)) if k else 0.0

    def report(self) -> dict[str, dict[str, float]]:
        """Present milliseconds: of a step by k, and of a drafted token by source."""
        steps = {str(k): round(1000 * seconds, 3) for k, seconds in self._seconds.items()}
        drafts = {source: round(1000 * self.draft_seconds(source, 1), 3) for source in sorted(self._drafts)}
        return {"step_milliseconds": steps, "draft_token_milliseconds": drafts}

    def _add(self, k: int, seconds: float) -> None:
        """A window that nothing is known of yet: as slow as this step."""
        if self._level is None:
            self._level = math.log(max(seconds, 1e-9))
        self._ratios[k] = math.log(max(seconds, 1e-9)) - self._level
        self._ratios = dict(sorted(self._ratios.items()))
        self._variances[k] = WARM_UP_VARIANCE

    def _update_seconds(self) -> None:
        logs = monotone(list(self._ratios.values()))
        self._seconds = {k: math.exp(self._level_now() + log) for k, log in zip(self._ratios, logs, strict=True)}

    def _ratio_gain(self, k: int) -> float:
        predicted = self._variances[k] + RATIO_DRIFT_VARIANCE
        gain = predicted / (predicted + self._spread**2)
        self._variances[k] = predicted * (1 - gain)
        return gain

    def _draft_ratio(self, source: str, k: int) -> float:
        """Of a token, as with the nearest k that was timed."""
        by_k = self._drafts.get(source)
        if not by_k:
            return FIRST_DRAFT_RATIO
        return by_k[min(by_k, key=lambda timed: (abs(timed - k), timed))].mean

    def _level_now(self) -> float:
        return self._level or 0.0

    def _clipped(self, residual: float) -> float:
        limit = 3 * self._spread
        self._spread = max(MIN_SPREAD, self._spread + SPREAD_GAIN * (min(abs(residual), 1.0) - self._spread))
        return max(-limit, min(limit, residual))
