"""How a job's rows go through the slots, as far as their lengths decide it: which cache lengths rounds will need."""

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class RowLength(NamedTuple):
    """Tokens of a row's prompt, and the most that it may generate."""

    prompt: int
    generated: int


class Rounds(NamedTuple):
    """Rounds by the length of the longest row in them.

    num_rounds, num_rows: (L + 1,) at each length: rounds, and rows in them. num_own: sum of all rows' lengths over the
    rounds.
    """

    num_rounds: NDArray[np.float64]
    num_rows: NDArray[np.float64]
    num_own: float


def expected_rounds(shards: Iterable[Sequence[RowLength]], batch_size: int) -> Rounds:
    """The rounds of plain decoding with every row at its most tokens; drafts and EOS leave out some of them.

    A shard's rows are admitted longest prompt first, into slots as they become free.
    """
    shards = [shard for shard in shards if shard]
    longest = max((row.prompt + row.generated for shard in shards for row in shard), default=0)
    # Differences along the lengths: a stretch of rounds without a change of rows adds to two places.
    rounds, rows = np.zeros(longest + 2), np.zeros(longest + 2)
    num_own = 0.0
    for shard in shards:
        for first, length, num_live, own in _stretches(shard, batch_size):
            rounds[first] += 1
            rounds[first + length] -= 1
            rows[first] += num_live
            rows[first + length] -= num_live
            num_own += own
    return Rounds(rounds.cumsum()[:-1], rows.cumsum()[:-1], num_own)


def _stretches(shard: Sequence[RowLength], batch_size: int) -> Iterable[tuple[int, int, int, float]]:
    """(longest row at the first round, rounds, rows in each, sum of their lengths) between changes of the rows."""
    waiting = sorted(shard, key=lambda row: row.prompt)
    live: list[tuple[int, int]] = []  # (round it ends before, its length minus the round)
    now = 0
    while waiting or live:
        while waiting and len(live) < batch_size:
            row = waiting.pop()
            # The first token comes with the prefill.
            if row.generated > 1:
                heapq.heappush(live, (now + row.generated - 1, row.prompt + 1 - now))
        if not live:
            return
        length = live[0][0] - now
        offsets = [offset for _, offset in live]
        yield max(offsets) + now, length, len(live), length * (sum(offsets) + len(live) * (now + (length - 1) / 2))
        now = live[0][0]
        while live and live[0][0] == now:
            heapq.heappop(live)
