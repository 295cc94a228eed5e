"""Made-up traces for replays, and the step times of a small model on a CPU to play them against."""

import math
import random
from collections.abc import Callable, Sequence

from tests.bench.replay import Clock, FixedLength, Spot, Trace, replay
from workers.engine.draft_length import Controller

LADDER = (0, 1, 2, 4, 8)
STEP_SECONDS = {
    1: dict(zip(LADDER, (0.028, 0.030, 0.031, 0.034, 0.042), strict=True)),
    4: dict(zip(LADDER, (0.045, 0.050, 0.055, 0.068, 0.095), strict=True)),
    8: dict(zip(LADDER, (0.062, 0.070, 0.080, 0.105, 0.160), strict=True)),
}


def clock(
    batch_size: int,
    is_free: bool,
    speed: Callable[[int], float] = lambda _: 1.0,
    jitter: Callable[[int], float] = lambda _: 1.0,
) -> Clock:
    drafting = None if is_free else {k: k * (0.012 + 0.0015 * batch_size) for k in LADDER}
    return Clock(STEP_SECONDS[batch_size], drafting, speed, jitter)


def steady(rate: float, num_rows: int, seed: int = 0) -> list[Trace]:
    """Rows of 40 to 200 tokens where each drafted token is right with the same probability."""
    rng = random.Random(seed)
    return [_row([rate] * rng.randint(40, 200), rng) for _ in range(num_rows)]


def bursts(num_rows: int, seed: int = 0) -> list[Trace]:
    """Stretches of copied text between stretches where few guesses are made and nearly none is right."""
    rng = random.Random(seed)
    return [_row(_stretches(rng.randint(100, 300), rng), rng, cover=0.4) for _ in range(num_rows)]


def lognormal(sigma: float, seed: int = 0) -> Callable[[int], float]:
    rng = random.Random(seed)
    factors = [math.exp(rng.gauss(0, sigma)) for _ in range(20_000)]
    return lambda number: factors[number]


def controller_for(traces: Sequence[Trace], clock: Clock, batch_size: int) -> tuple[Controller, float]:
    """A controller that has played the traces, and the seconds it took."""
    controller = Controller(LADDER, batch_size)
    controller.warm_up(clock.step_seconds)
    return controller, replay(traces, controller, clock, batch_size).seconds


def fixed_seconds(traces: Sequence[Trace], clock: Clock, batch_size: int) -> dict[int, float]:
    """By k, what a fixed draft length takes; k = 0 is plain decoding."""
    return {k: replay(traces, FixedLength(k), clock, batch_size).seconds for k in LADDER}


def _row(rates: Sequence[float], rng: random.Random, cover: float = 1.0) -> Trace:
    """Kind 2 where the guess is likely right. cover: how often there is one elsewhere."""
    right = [rng.random() < rate for rate in [*rates, *[0.0] * 8]]
    spots = []
    for place, rate in enumerate(rates):
        num_right = next(index for index in range(9) if index == 8 or not right[place + index])
        has_guess = rate > 0.5 or rng.random() < cover
        spots.append(Spot(8, num_right, 2 if rate > 0.5 else 1) if has_guess else Spot(0, 0))
    return spots


def _stretches(length: int, rng: random.Random) -> list[float]:
    rates: list[float] = []
    while len(rates) < length:
        rates += [0.1] * rng.randint(10, 90) + [0.95] * rng.randint(10, 50)
    return rates[:length]
