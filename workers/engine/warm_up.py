"""What a step costs for each number of drafted tokens, measured before rows are there."""

import statistics
import time
from collections.abc import Sequence

import torch

from workers.engine.buckets import Buckets
from workers.engine.runner import ModelRunner

_NUM_RUNS = 5


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
