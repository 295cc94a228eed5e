"""The allowed sizes. Running takes its shapes from here, and a warm-up lists them with `planned_keys`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple, Protocol


class GraphKey(NamedTuple):
    """What makes a device compile anew: rows, positions of each, and visible cache positions (0 in a prefill)."""

    phase: Literal["prefill", "decode"]
    num_rows: int
    num_positions: int
    kv_length: int


class Sizes(Protocol):
    """What lengths are rounded up to, and the numbers of prompts in one prefill."""

    @property
    def is_planned(self) -> bool:
        """Whether the sizes are few and known, so that a warm-up can go through them all."""
        ...

    def prefill_length(self, num_tokens: int) -> int: ...

    def kv_length(self, num_positions: int) -> int: ...

    def cache_length(self, num_positions: int) -> int:
        """Positions of a cache that must hold so many."""
        ...

    def rows_of(self, length: int) -> tuple[int, ...]:
        """Allowed numbers of prompts in a prefill of that length, ascending."""
        ...

    def prefill_lengths(self, last: int) -> Sequence[int]:
        """All that can occur up to last, one of them."""
        ...

    def kv_lengths(self, last: int) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class BucketPolicy:
    """Sizes in equal steps without an end, for devices that take any.

    prefill_step, kv_step: lengths are rounded up to multiples of these. prefill_rows: allowed numbers of prompts in
    one prefill, ascending; a group smaller than the first is padded with rows that go to the scratch slot.
    """

    prefill_step: int
    prefill_rows: tuple[int, ...]
    kv_step: int

    is_planned = False

    def prefill_length(self, num_tokens: int) -> int:
        return round_up(num_tokens, self.prefill_step)

    def kv_length(self, num_positions: int) -> int:
        return round_up(num_positions, self.kv_step)

    def cache_length(self, num_positions: int) -> int:
        return self.kv_length(num_positions)

    def rows_of(self, length: int) -> tuple[int, ...]:
        return self.prefill_rows

    def prefill_lengths(self, last: int) -> range:
        return range(self.prefill_step, last + 1, self.prefill_step)

    def kv_lengths(self, last: int) -> range:
        return range(self.kv_step, last + 1, self.kv_step)


class PrefillBucket(NamedTuple):
    """A length, and the numbers of prompts that one prefill of it may have, ascending."""

    length: int
    num_rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BucketBorders:
    """Sizes that were planned: each of the two ascending, and the cache as long as the last.

    What is longer was not planned for. It runs all the same, at the next multiple of the last size.
    """

    prefill: tuple[PrefillBucket, ...]
    kv: tuple[int, ...]

    is_planned = True

    def prefill_length(self, num_tokens: int) -> int:
        return self._prefill_bucket(num_tokens).length

    def kv_length(self, num_positions: int) -> int:
        return next((border for border in self.kv if border >= num_positions), round_up(num_positions, self.kv[-1]))

    def cache_length(self, num_positions: int) -> int:
        return max(self.kv[-1], self.kv_length(num_positions))

    def rows_of(self, length: int) -> tuple[int, ...]:
        return self._prefill_bucket(length).num_rows

    def prefill_lengths(self, last: int) -> list[int]:
        return [bucket.length for bucket in self.prefill]

    def kv_lengths(self, last: int) -> tuple[int, ...]:
        return self.kv

    def _prefill_bucket(self, num_tokens: int) -> PrefillBucket:
        longer = PrefillBucket(round_up(num_tokens, self.prefill[-1].length), (1,))
        return next((bucket for bucket in self.prefill if bucket.length >= num_tokens), longer)


# A padded position costs as much as a real one on a device that takes any shape, so steps are small there.
FINE_BUCKETS = BucketPolicy(prefill_step=16, prefill_rows=(1, 2, 4), kv_step=64)


def fixed_policy(kv_length: int) -> BucketPolicy:
    """Shapes that depend on one row alone: prompts are prefilled one by one, and the cache is seen whole."""
    return BucketPolicy(prefill_step=FINE_BUCKETS.prefill_step, prefill_rows=(1,), kv_step=kv_length)


def fixed_borders(kv_length: int, max_lengths: int) -> BucketBorders:
    """The same in at most max_lengths prefill shapes, for devices where each of them is compiled."""
    step = round_up(-(-kv_length // max_lengths), FINE_BUCKETS.prefill_step)
    lengths = (*range(step, kv_length, step), kv_length)
    return BucketBorders(tuple(PrefillBucket(length, (1,)) for length in lengths), (kv_length,))


@dataclass(frozen=True, slots=True)
class Buckets:
    """The sizes of one engine: of prompts, windows and cache.

    draft_lengths: numbers of drafted tokens a round, ascending. is_fixed: whether every window is the longest.
    """

    policy: Sizes
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
        return self.policy.prefill_length(num_tokens)

    def prefill_rows(self, num_waiting: int, length: int) -> int:
        """The most rows that num_waiting prompts of that length bucket fill, or else the fewest allowed."""
        allowed = self.policy.rows_of(length)
        filled = [rows for rows in allowed if rows <= num_waiting]
        return filled[-1] if filled else allowed[0]

    def kv_length(self, num_positions: int) -> int:
        return self.policy.kv_length(num_positions)

    def cache_length(self, max_prompt: int, max_length: int) -> int:
        """Cache positions for rows of at most max_length tokens: room for a window that runs past a row's end."""
        return self.policy.cache_length(max(max_length + self.window, self.prefill_length(max_prompt)))

    def planned_keys(self, max_prompt: int, max_length: int) -> Iterator[GraphKey]:
        """Every shape that rows of at most max_length tokens, max_prompt of them prompt, can bring about."""
        for length in self.policy.prefill_lengths(self.prefill_length(max_prompt)):
            for rows in self.policy.rows_of(length):
                yield GraphKey("prefill", rows, length, 0)
        windows = sorted({self.window_of(length) for length in (0, *self.draft_lengths)})
        kv_lengths = self.policy.kv_lengths(self.cache_length(max_prompt, max_length))
        for window, kv_length in product(windows, kv_lengths):
            yield GraphKey("decode", self.batch_size, window, kv_length)

    def warm_up_keys(self) -> list[GraphKey]:
        """Every planned shape, the largest first; none where sizes go on without an end."""
        keys = self.planned_keys(0, 0) if self.policy.is_planned else ()
        return sorted(keys, key=lambda key: (key.num_rows * max(key.num_positions, key.kv_length), key), reverse=True)


def round_up(number: int, step: int) -> int:
    """The smallest multiple of step that is at least number."""
    return -(-number // step) * step
