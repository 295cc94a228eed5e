"""How many of a row's drafted tokens the target can be expected to accept."""

from collections.abc import Sequence

from workers.engine.draft_length.counts import PositionCounts, RowOdds
from workers.engine.draft_length.tunables import Tunables


class Acceptance:
    """Estimates by source, kind of guess and position, and a factor for each row; each leans on the one before.

    Rates are those of the last `end_round`.
    """

    def __init__(self, num_positions: int, batch_size: int, tunables: Tunables) -> None:
        self._num_positions, self._tunables = num_positions, tunables
        self._by_kind: dict[tuple[str, int | None], PositionCounts] = {}  # kind None: all of a source
        self._rows: list[dict[str, RowOdds]] = [{} for _ in range(batch_size)]
        self._rates: dict[tuple[str, int | None], list[float]] = {}

    def start(self, slot: int) -> None:
        """A new row: nothing is known of it but its sources."""
        self._rows[slot] = {}

    def add(self, slot: int, source: str, kind: int | None, first: int, num_hits: int, is_miss: bool) -> None:
        """Of a row's guess, num_hits tokens from position first on were right, and the next wrong if is_miss."""
        expected = self.rates(source, kind)[first : first + num_hits + is_miss]
        self._row(slot, source).add(expected, num_hits)
        self._counts(source, None).add(first, num_hits, is_miss)
        if kind is not None:
            self._counts(source, kind).add(first, num_hits, is_miss)

    def end_round(self) -> None:
        """What was added since counts from now on."""
        self._rates.clear()

    def fade(self, source: str, first: int) -> None:
        """What is known of a source's positions from first on is old, and new trials shall soon outweigh it."""
        for (name, _), counts in self._by_kind.items():
            if name == source:
                counts.fade(first, self._tunables.faded_trials)
        self.end_round()

    def rates(self, source: str, kind: int | None) -> list[float]:
        """Conditional acceptance at each position, for an average row; kind None: whatever it is."""
        if (source, kind) not in self._rates:
            self._rates[source, kind] = self._compute_rates(source, kind)
        return self._rates[source, kind]

    def expected(self, slot: int, source: str, kind: int | None, limit: int) -> list[float]:
        """Expected number of accepted tokens of this row's window of 0, 1, … limit drafted tokens."""
        row = self._rows[slot].get(source)
        factor = row.factor if row else 1.0
        expected, reached, total = [0.0], 1.0, 0.0
        for rate in self.rates(source, kind)[:limit]:
            reached *= factor * rate / (1 - rate + factor * rate)
            total += reached
            expected.append(total)
        return expected

    def report(self) -> dict[str, dict[str, list[dict[str, float]]]]:
        """By source and kind ("all": together), for each position: trials and hits so far, and the present estimate."""
        report: dict[str, dict[str, list[dict[str, float]]]] = {}
        for (source, kind), counts in self._by_kind.items():
            name = "all" if kind is None else str(kind)
            report.setdefault(source, {})[name] = self._describe(counts, self.rates(source, kind))
        return report

    def _describe(self, counts: PositionCounts, rates: Sequence[float]) -> list[dict[str, float]]:
        columns = zip(counts.total_trials, counts.total_hits, rates, strict=True)
        return [{"trials": t, "accepted": h, "estimate": round(r, 4)} for t, h, r in columns if t]

    def _compute_rates(self, source: str, kind: int | None) -> list[float]:
        tunables, counts = self._tunables, self._counts(source, kind)
        if kind is None:
            return counts.chained_rates(tunables.first_acceptance, tunables.prior_trials)
        return counts.rates(self.rates(source, None), tunables.kind_prior_trials)

    def _counts(self, source: str, kind: int | None) -> PositionCounts:
        if (source, kind) not in self._by_kind:
            self._by_kind[source, kind] = PositionCounts(self._num_positions, self._tunables.discount)
        return self._by_kind[source, kind]

    def _row(self, slot: int, source: str) -> RowOdds:
        if source not in self._rows[slot]:
            self._rows[slot][source] = RowOdds(self._tunables.row_discount, self._tunables.row_prior_trials)
        return self._rows[slot][source]
