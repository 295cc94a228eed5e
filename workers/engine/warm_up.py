"""Before rows are there: every planned shape runs once, and steps are measured for each number of drafted tokens."""

import logging
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch

from workers.engine.buckets import Buckets, GraphKey
from workers.engine.runner import ModelRunner

logger = logging.getLogger(__name__)

_NUM_RUNS = 5


class PlannedShapes(NamedTuple):
    """The shapes that one model's forwards will have. takes_last: of windows, only their last position's logits."""

    runner: ModelRunner
    keys: Sequence[GraphKey]
    takes_last: bool = False


@torch.inference_mode()
def warm_up(planned: Iterable[PlannedShapes], on_forward: Callable[[], None]) -> float:
    """Runs every shape once, a model's largest first; returns the seconds. What the slots' cache holds is lost.

    Shapes that a runner has been through are left out. on_forward is called before each and may raise to stop: a shape
    may take a compiler's minutes.
    """
    began = time.perf_counter()
    waiting = [(shapes, key) for shapes in planned for key in shapes.keys if key not in shapes.runner.warmed]
    for place, (shapes, key) in enumerate(waiting, start=1):
        on_forward()
        start = time.perf_counter()
        shapes.runner.run_empty(key, shapes.takes_last)
        logger.info("warm-up %d/%d: %s in %.2f s", place, len(waiting), key, time.perf_counter() - start)
    return time.perf_counter() - began


@torch.inference_mode()
def measure_steps(runner: ModelRunner, buckets: Buckets, draft_lengths: Sequence[int]) -> dict[int, float]:
    """Median seconds of a verifying forward by number of drafted tokens. What the slots' cache holds is lost.

    The lengths take turns, so that a machine's drift meets all alike; the first turn, where shapes may be compiled and
    memory is first touched, does not count.
    """
    seconds: dict[int, list[float]] = {length: [] for length in draft_lengths}
    for turn in range(_NUM_RUNS + 1):
        for length in draft_lengths:
            taken = _seconds_of_step(runner, buckets, length)
            if turn:
                seconds[length].append(taken)
    return {length: statistics.median(taken) for length, taken in seconds.items()}


def _seconds_of_step(runner: ModelRunner, buckets: Buckets, num_drafted: int) -> float:
    device = runner.target.device
    window = torch.arange(buckets.window_of(num_drafted), device=device).expand(buckets.batch_size, -1)
    began = time.perf_counter()
    logits = runner.decode(torch.zeros_like(window), window, buckets.kv_length(window.shape[1]))
    logits.argmax(-1).tolist()  # waits, as a round does
    return time.perf_counter() - began
