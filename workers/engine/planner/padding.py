"""What is computed in vain, counted apart: as it happened in a run, and as it is expected of a plan."""

from collections.abc import Sequence
from dataclasses import dataclass, fields


@dataclass(slots=True)
class Padding:
    """Pairs of counts: positions that a forward computed, and those of them that were for nothing.

    query, padded_query: of prefills. slot, empty_slot: of rounds, one for each slot. kv, masked_kv: cache positions
    that rows' rounds read, and those behind a row's end. window, rejected_window: positions of rows' windows, and those
    from which no token was kept.
    """

    query: float = 0
    padded_query: float = 0
    slot: float = 0
    empty_slot: float = 0
    kv: float = 0
    masked_kv: float = 0
    window: float = 0
    rejected_window: float = 0

    def add_prefill(self, num_rows: int, length: int, num_tokens: int) -> None:
        """A forward of num_rows x length positions, num_tokens of them prompts'."""
        self.query += num_rows * length
        self.padded_query += num_rows * length - num_tokens

    def add_round(self, num_slots: int, window: int, kv_length: int, row_lengths: Sequence[int], num_kept: int) -> None:
        """A round over num_slots slots. row_lengths: of the rows in them, before it. num_kept: tokens of all rows."""
        num_rows = len(row_lengths)
        self.slot += num_slots
        self.empty_slot += num_slots - num_rows
        self.kv += num_rows * kv_length
        self.masked_kv += num_rows * kv_length - sum(row_lengths)
        self.window += num_rows * window
        self.rejected_window += num_rows * window - num_kept

    def add(self, other: "Padding") -> None:
        for counted in fields(self):
            setattr(self, counted.name, getattr(self, counted.name) + getattr(other, counted.name))

    def shares(self) -> dict[str, float | None]:
        """For JSON; None for what nothing is known of."""
        return {
            "padded_queries": share(self.padded_query, self.query),
            "empty_slots": share(self.empty_slot, self.slot),
            "masked_kv": share(self.masked_kv, self.kv),
            "rejected_window_positions": share(self.rejected_window, self.window),
        }


def share(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole else None
