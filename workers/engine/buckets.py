"""The allowed sizes. Running takes its shapes from here, and a warm-up can list them with `planned_keys`."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple


class GraphKey(NamedTuple):
    """What makes a device compile anew: rows, positions of each, and visible cache positions (0 in a prefill)."""

    phase: Literal["prefill", "decode"]
    num_rows: int
    num_positions: int
    kv_length: int


@dataclass(frozen=True, slots=True)
class BucketPolicy:
    """How coarse the sizes are.

    prefill_step, kv_step: lengths are rounded up to multiples of these. prefill_rows: allowed numbers of prompts in
    one prefill, ascending; a group smaller than the first is padded with rows that go to the scratch slot.
    """

    prefill_step: int
    prefill_rows: tuple[int, ...]
    kv_step: int


# A padded position costs as much as a real one on a device that takes any shape, so steps are small there.
# Where each shape is a compilation they are large, and few rows are enough: a refill is mostly one row.
FINE_BUCKETS = BucketPolicy(prefill_step=16, prefill_rows=(1, 2, 4), kv_step=64)
COARSE_BUCKETS = BucketPolicy(prefill_step=128, prefill_rows=(1, 4), kv_step=256)


def bucket_policy(static_shapes: bool) -> BucketPolicy:
    """The policy for a device, by its `static_shapes`."""
    return COARSE_BUCKETS if static_shapes else FINE_BUCKETS


def fixed_policy(kv_length: int) -> BucketPolicy:
    """Shapes that depend on one row alone: prompts are prefilled one by one, and the cache is seen whole."""
    return BucketPolicy(prefill_step=FINE_BUCKETS.prefill_step, prefill_rows=(1,), kv_step=kv_length)


@dataclass(frozen=True, slots=True)
class Buckets:
    """The bucket planner of one engine.

    draft_lengths: numbers of drafted tokens a round, ascending. is_fixed: whether every window is the longest.
    """

    policy: BucketPolicy
    batch_size: int
    draft_lengths: tuple[int, ...]
    is_fixed: bool = False

    @property
    def window(self) -> int:
        """Positions verified at once, at most."""
        return self.draft_lengths[-1] + 1

    def window_of(self, num_drafted: int) -> int:
        """The window of a round that drafts so many tokens a row."""
        return self.window if self.is_fixed else num_drafted + 1

    def prefill_length(self, num_tokens: int) -> int:
        return round_up(num_tokens, self.policy.prefill_step)

    def prefill_rows(self, num_waiting: int) -> int:
        """The most rows that num_waiting prompts (of one length bucket) fill, or else the fewest allowed."""
        filled = [rows for rows in self.policy.prefill_rows if rows <= num_waiting]
        return filled[-1] if filled else self.policy.prefill_rows[0]

    def kv_length(self, num_positions: int) -> int:
        return round_up(num_positions, self.policy.kv_step)

    def cache_length(self, max_prompt: int, max_length: int) -> int:
        """Cache positions for rows of at most max_length tokens: room for a window that runs past a row's end."""
        return self.kv_length(max(max_length + self.window, self.prefill_length(max_prompt)))

    def planned_keys(self, max_prompt: int, max_length: int) -> Iterator[GraphKey]:
        """Every shape that rows of at most max_length tokens, max_prompt of them prompt, can bring about."""
        lengths = _multiples(self.policy.prefill_step, self.prefill_length(max_prompt))
        for rows, length in product(self.policy.prefill_rows, lengths):
            yield GraphKey("prefill", rows, length, 0)
        kv_lengths = _multiples(self.policy.kv_step, self.cache_length(max_prompt, max_length))
        windows = sorted({self.window_of(length) for length in (0, *self.draft_lengths)})
        for window, kv_length in product(windows, kv_lengths):
            yield GraphKey("decode", self.batch_size, window, kv_length)


def round_up(number: int, step: int) -> int:
    """The smallest multiple of step that is at least number."""
    return -(-number // step) * step


def _multiples(step: int, last: int) -> range:
    return range(step, last + 1, step)
