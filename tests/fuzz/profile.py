"""How much is tried: the same examples each time, quickly; FUZZ_SCALE=100 tries a hundred times as many new ones."""

import os
from datetime import timedelta

from hypothesis import HealthCheck, settings

SCALE = int(os.environ.get("FUZZ_SCALE", "1"))


def fuzzed(num_examples: int, deadline_seconds: float = 5.0) -> settings:
    """deadline_seconds: what takes longer hangs."""
    return settings(
        max_examples=num_examples * SCALE,
        derandomize=SCALE == 1,
        database=None,
        deadline=timedelta(seconds=deadline_seconds),
        suppress_health_check=list(HealthCheck),
    )
