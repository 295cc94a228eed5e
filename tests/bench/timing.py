"""Medians of runs made side by side: A B A B …, so that a machine's drift meets both alike."""

import statistics
import time
from collections.abc import Callable, Sequence


def seconds_of(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def side_by_side(works: Sequence[Callable[[], object]], num_runs: int) -> list[list[float]]:
    """Seconds of each work in each run; the works take turns within a run."""
    runs = [[seconds_of(work) for work in works] for _ in range(num_runs)]
    return [list(column) for column in zip(*runs, strict=True)]


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """The median of the ratios run by run, which drift touches less than the ratio of medians."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))
