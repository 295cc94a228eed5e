"""Isotonic regression: the nearest sequence that never falls."""

from collections.abc import Sequence


def monotone(values: Sequence[float]) -> list[float]:
    """Least-squares fit by pooling adjacent violators: a run that falls is replaced by its mean."""
    pools: list[tuple[float, int]] = []  # mean, number of values
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (left, num_left), (right, num_right) = pools[-2:]
            num = num_left + num_right
            pools[-2:] = [((left * num_left + right * num_right) / num, num)]
    return [mean for mean, num in pools for _ in range(num)]
