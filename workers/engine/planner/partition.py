"""Which sizes to allow: the borders with the least padding, of all choices that cost no more than a budget."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Demand:
    """How often which size is needed, on a grid. Optimal borders lie on grid points that some need was rounded up to.

    borders: (D,) ascending. counts: (D,) needs that the border is the next for. totals: (D,) the sum of those needs.
    """

    borders: NDArray[np.int64]
    counts: NDArray[np.float64]
    totals: NDArray[np.float64]

    @classmethod
    def of(cls, needs: Iterable[tuple[int, float]], grid: int, last: int) -> Self:
        """needs: (size, how often), sizes above 0. last: a size that has to be allowed too, at least the largest."""
        sizes, counts = np.array([*needs, (last, 0.0)], dtype=np.float64).T
        borders, places = np.unique(np.ceil(sizes / grid).astype(np.int64) * grid, return_inverse=True)
        return cls(
            borders,
            np.bincount(places, counts).astype(np.float64),
            np.bincount(places, counts * sizes).astype(np.float64),
        )


class Partitions:
    """The best borders for each budget up to the given one, by dynamic programming over the last border but one.

    Padding is summed over all needs, each rounded up to its border. Exact, O(budget x D^2): Bellman 1961 ("On the
    approximation of curves by line segments using dynamic programming"), and as for histograms in Jagadish et al. 1998
    ("Optimal histograms with quality guarantees", VLDB).
    """

    def __init__(self, demand: Demand, prices: NDArray[np.int64], budget: int) -> None:
        """prices: (D,) what each border takes from the budget, at least 1."""
        self._demand, self._prices = demand, prices
        num_borders = len(demand.borders)
        self._padding = np.full((budget + 1, num_borders + 1), np.inf)  # of the first j needs, with budget b
        self._padding[:, 0] = 0.0
        self._before = np.zeros((budget + 1, num_borders + 1), dtype=np.int64)
        for j in range(1, num_borders + 1):
            self._add_border(j)

    def padding(self, budget: int) -> float:
        """Expected padding with at most this budget; infinite where the budget buys no border."""
        return float(self._padding[budget, -1])

    def borders(self, budget: int) -> tuple[int, ...]:
        """Ascending; the last is the largest size. Raises ValueError where the budget buys none."""
        if np.isinf(self._padding[budget, -1]):
            raise ValueError(f"a budget of {budget} buys no border")
        chosen: list[int] = []
        j = len(self._demand.borders)
        while j:
            chosen.append(int(self._demand.borders[j - 1]))
            j, budget = int(self._before[budget, j]), budget - int(self._prices[j - 1])
        return tuple(reversed(chosen))

    def _add_border(self, j: int) -> None:
        """Where border j - 1 is the largest of the chosen: tries every border below it as the next one."""
        price = int(self._prices[j - 1])
        if price >= len(self._padding):
            return
        paddings = self._padding[: len(self._padding) - price, :j] + self._between(j)
        best = paddings.argmin(axis=1)
        self._before[price:, j] = best
        self._padding[price:, j] = paddings[np.arange(len(best)), best]

    def _between(self, j: int) -> NDArray[np.float64]:
        """(j,) padding of the needs i..j - 1 where all are rounded up to border j - 1."""
        counts = self._demand.counts[:j][::-1].cumsum()[::-1]
        totals = self._demand.totals[:j][::-1].cumsum()[::-1]
        padding: NDArray[np.float64] = self._demand.borders[j - 1] * counts - totals
        return padding
