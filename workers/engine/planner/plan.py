"""The bucket planner: which shapes a job's rows run in, at most so many, for the least expected padding.

Prefill shapes are (rows, length), decode shapes (slots, window, cache length), and every window of the ladder can meet
every cache length. The budget goes where it saves most: padded prompt positions and masked cache positions are summed
up, the latter weighted by what they cost beside the former. That weight is an estimate, so prefills with no more than a
tenth of padding come first.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from schemas.errors import InvalidJob
from workers.engine.buckets import BucketBorders, PrefillBucket, round_up
from workers.engine.planner.padding import Padding
from workers.engine.planner.partition import Demand, Partitions
from workers.engine.planner.rounds import Rounds, RowLength, expected_rounds

PREFILL_GRID, KV_GRID = 16, 64
# A coarser grid for very long contexts: planning takes time with the square of the grid's points.
_MOST_POINTS = 512
# Below so many positions a forward is bound by reading the weights, so that prompts had better share one.
_SHARED_POSITIONS = 512
_WANTED_PADDING = 0.1


@dataclass(frozen=True, slots=True)
class ShapeNeeds:
    """What shapes are planned for.

    shards: the rows' lengths, as they are generated together; empty where nothing is known of them: then every prompt
    length is taken for as likely. max_length: tokens that a row can have. max_prompt: the longest prompt.
    windows: positions of a round's forward, ascending. kv_weight: cost of a masked cache position beside that of a
    padded prompt position. max_keys: shapes. keys_beside: those that each cache length takes beside its windows.
    """

    shards: Sequence[Sequence[RowLength]]
    max_prompt: int
    max_length: int
    batch_size: int
    windows: tuple[int, ...]
    kv_weight: float
    max_keys: int
    keys_beside: int = 0

    @property
    def keys_of_kv(self) -> int:
        """Shapes that each cache length takes."""
        return len(self.windows) + self.keys_beside


class ShapePlan(NamedTuple):
    """The planned sizes, and what they make the rows compute in vain; rejected window positions show in a run only."""

    borders: BucketBorders
    padding: Padding


def plan_shapes(needs: ShapeNeeds) -> ShapePlan:
    """Raises InvalidJob where max_keys are too few for any plan."""
    shards = needs.shards or _any_length(needs.max_prompt, needs.max_length, needs.batch_size)
    rounds = expected_rounds(shards, needs.batch_size)
    prompts = Counter(row.prompt for shard in shards for row in shard)
    prefill = _prefill_partitions(prompts, needs)
    kv = _kv_partitions(rounds, needs)
    num_kv = _best_split(prefill, kv, needs, sum(prompt * count for prompt, count in prompts.items()))
    lengths = prefill.borders(needs.max_keys - num_kv * needs.keys_of_kv)
    borders = BucketBorders(
        tuple(PrefillBucket(length, _rows_of(length, needs.batch_size)) for length in lengths), kv.borders(num_kv)
    )
    return ShapePlan(borders, expected_padding(borders, prompts, rounds, needs))


def expected_padding(borders: BucketBorders, prompts: Counter[int], rounds: Rounds, needs: ShapeNeeds) -> Padding:
    """Of prefills and of rounds that draft nothing."""
    padding = Padding()
    for prompt, count in prompts.items():
        padding.add_prefill(count, borders.prefill_length(prompt), count * prompt)
    padding.slot = float(rounds.num_rounds.sum()) * needs.batch_size
    padding.empty_slot = padding.slot - float(rounds.num_rows.sum())
    needed = np.flatnonzero(rounds.num_rows)
    padding.kv = float(sum(rounds.num_rows[length] * borders.kv_length(int(length)) for length in needed))
    padding.masked_kv = padding.kv - rounds.num_own
    return padding


def _any_length(max_prompt: int, max_length: int, batch_size: int) -> list[list[RowLength]]:
    """One row of each prompt length, each shard of like lengths, as rows are admitted."""
    rows = [RowLength(prompt, max_length - prompt) for prompt in range(1, max_prompt + 1)]
    return [rows[first : first + batch_size] for first in range(0, len(rows), batch_size)]


def _prefill_partitions(prompts: Counter[int], needs: ShapeNeeds) -> Partitions:
    demand = Demand.of(prompts.items(), _grid(PREFILL_GRID, needs.max_prompt), needs.max_prompt)
    prices = np.array([len(_rows_of(int(border), needs.batch_size)) for border in demand.borders])
    return Partitions(demand, prices, max(needs.max_keys - needs.keys_of_kv, 0))


def _kv_partitions(rounds: Rounds, needs: ShapeNeeds) -> Partitions:
    """Each border for one, whatever the windows cost. A round reads the cache of all slots, of empty ones too."""
    grid, overrun = _grid(KV_GRID, needs.max_length), needs.windows[-1]
    lengths = np.flatnonzero(rounds.num_rounds)
    counted = ((int(length) + overrun - 1, float(rounds.num_rounds[length]) * needs.batch_size) for length in lengths)
    longest = max(needs.max_length + overrun, round_up(needs.max_prompt, _grid(PREFILL_GRID, needs.max_prompt)))
    demand = Demand.of(counted, grid, longest)
    return Partitions(demand, np.ones(len(demand.borders), dtype=np.int64), needs.max_keys // needs.keys_of_kv)


def _best_split(prefill: Partitions, kv: Partitions, needs: ShapeNeeds, num_tokens: int) -> int:
    """How many cache lengths to have, the rest of the budget going to prefills. num_tokens: of all prompts."""

    def cost(num_kv: int) -> tuple[float, float]:
        padded = prefill.padding(needs.max_keys - num_kv * needs.keys_of_kv)
        wanted = num_tokens * _WANTED_PADDING / (1 - _WANTED_PADDING)
        return max(padded, wanted), padded + needs.kv_weight * kv.padding(num_kv)

    splits = range(1, (needs.max_keys - 1) // needs.keys_of_kv + 1)
    best = min(splits, key=cost, default=None)
    if best is None or np.isinf(cost(best)[0]):
        least = needs.keys_of_kv + len(_rows_of(needs.max_prompt, needs.batch_size))
        raise InvalidJob(
            f"--max-graphs leaves {needs.max_keys} shapes, and windows of {_listed(needs.windows)} positions and a "
            f"prefill need {least}; raise it, or give fewer --draft-lengths"
        )
    return best


def _rows_of(length: int, batch_size: int) -> tuple[int, ...]:
    """One prompt, and as many as make a forward worth its while, a power of two."""
    most = min(batch_size, _SHARED_POSITIONS // length)
    return (1, 1 << (most.bit_length() - 1)) if most >= 2 else (1,)


def _grid(finest: int, last: int) -> int:
    return round_up(-(-last // _MOST_POINTS), finest)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
