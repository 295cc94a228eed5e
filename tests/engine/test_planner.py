"""The bucket planner: every row has a planned shape, shapes are no more than allowed, and padding is the least."""

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import InvalidJob
from tests.bench.vllm_gaudi import padded
from workers.engine.buckets import BucketBorders, Buckets, GraphKey, fixed_borders
from workers.engine.options import EngineOptions
from workers.engine.planner.defaults import sizes_for
from workers.engine.planner.job import DRAFT_WINDOWS, JobLengths, plan_job
from workers.engine.planner.memory import MemoryPlan, ModelSize
from workers.engine.planner.padding import Padding
from workers.engine.planner.partition import Demand, Partitions
from workers.engine.planner.plan import ShapeNeeds, plan_shapes
from workers.engine.planner.rounds import RowLength, expected_rounds

pytestmark = pytest.mark.engine

SIZE = ModelSize(num_parameters=10**8, weight_bytes=2 * 10**8, kv_bytes=20_000, vocab_size=50_000, context_length=2048)
DRAFT_SIZE = ModelSize(10**7, 2 * 10**7, 5_000, 50_000, 1024)

row_lengths = st.builds(RowLength, st.integers(1, 1500), st.integers(1, 300))
shards_of_rows = st.lists(st.lists(row_lengths, min_size=1, max_size=12), min_size=1, max_size=4)


def needs_of(shards: list[list[RowLength]], max_keys: int, **changes: Any) -> ShapeNeeds:
    rows = [row for shard in shards for row in shard]
    values: dict[str, Any] = {
        "shards": shards,
        "max_prompt": max(row.prompt for row in rows),
        "max_length": max(sum(row) for row in rows),
        "batch_size": 8,
        "windows": (1, 2, 3, 5, 9),
        "kv_weight": 0.01,
        "max_keys": max_keys,
    }
    return ShapeNeeds(**(values | changes))


def buckets_of(borders: BucketBorders, needs: ShapeNeeds) -> Buckets:
    return Buckets(borders, needs.batch_size, tuple(window - 1 for window in needs.windows))


@given(shards_of_rows, st.integers(7, 60))
@settings(deadline=None)
def test_every_row_that_fits_has_planned_shapes_and_there_are_no_more_than_allowed(
    shards: list[list[RowLength]], max_keys: int
) -> None:
    needs = needs_of(shards, max_keys)
    buckets = buckets_of(plan_shapes(needs).borders, needs)
    keys = buckets.warm_up_keys()
    assert len(set(keys)) == len(keys) <= max_keys
    assert set(keys) == set(buckets.planned_keys(needs.max_prompt, needs.max_length))
    for row in (row for shard in shards for row in shard):
        length = buckets.prefill_length(row.prompt)
        num_rows = {buckets.prefill_rows(num_waiting, length) for num_waiting in range(1, 9)}
        assert {GraphKey("prefill", rows, length, 0) for rows in num_rows} <= set(keys)
        for window in needs.windows:
            kv_length = buckets.kv_length(row.prompt + row.generated + window)
            assert GraphKey("decode", 8, window, kv_length) in keys
            assert kv_length <= buckets.cache_length(needs.max_prompt, needs.max_length)
    assert max(key.num_positions for key in keys) <= buckets.cache_length(needs.max_prompt, needs.max_length)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 9)), min_size=1, max_size=7), st.integers(1, 5))
def test_no_other_choice_of_borders_has_less_padding(needs: list[tuple[int, int]], num_borders: int) -> None:
    grid, last = 4, max(size for size, _ in needs)
    demand = Demand.of(needs, grid, last)
    partitions = Partitions(demand, np.ones(len(demand.borders), dtype=np.int64), num_borders)
    chosen = partitions.borders(num_borders)
    assert len(chosen) <= num_borders and partitions.padding(num_borders) == padding_of(needs, chosen)
    top = -(-last // grid) * grid
    others = ((*lower, top) for count in range(num_borders) for lower in combinations(range(grid, top, grid), count))
    assert partitions.padding(num_borders) == min(padding_of(needs, borders) for borders in others)


def padding_of(needs: list[tuple[int, int]], borders: tuple[int, ...]) -> int:
    return sum(count * (min(border for border in borders if border >= size) - size) for size, count in needs)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=30), st.integers(2, 12))
def test_dearer_borders_are_paid_for(sizes: list[int], budget: int) -> None:
    demand = Demand.of([(size, 1.0) for size in sizes], 16, max(sizes))
    prices = np.where(demand.borders <= 128, 2, 1)
    price_of = dict(zip(demand.borders.tolist(), prices.tolist(), strict=True))
    chosen = Partitions(demand, prices, budget).borders(budget)
    assert sum(price_of[border] for border in chosen) <= budget


@given(st.lists(st.integers(1, 4096), min_size=1, max_size=200))
def test_never_more_padding_than_vllm_gaudis_pad_strategy_with_as_many_lengths(prompts: list[int]) -> None:
    theirs = tuple(padded(4096))
    needs = [(prompt, count) for prompt, count in Counter(prompts).items()]
    demand = Demand.of(needs, 16, 4096)
    partitions = Partitions(demand, np.ones(len(demand.borders), dtype=np.int64), len(theirs))
    assert partitions.padding(len(theirs)) <= padding_of(needs, theirs)


@given(shards_of_rows, st.integers(7, 30))
@settings(deadline=None)
def test_more_shapes_never_cost_more_and_longer_rows_never_get_shorter_buckets(
    shards: list[list[RowLength]], max_keys: int
) -> None:
    costs = []
    for keys in (max_keys, max_keys + 4):
        needs = needs_of(shards, keys, kv_weight=0.0)
        costs.append(plan_shapes(needs).padding.padded_query)
    assert costs[1] <= costs[0]
    borders = plan_shapes(needs_of(shards, max_keys)).borders
    lengths = [borders.prefill_length(length) for length in range(1, 1600)]
    assert lengths == sorted(lengths) and all(length >= n for n, length in enumerate(lengths, start=1))
    kv_lengths = [borders.kv_length(length) for length in range(1, 2500)]
    assert kv_lengths == sorted(kv_lengths) and all(length >= n for n, length in enumerate(kv_lengths, start=1))


@given(shards_of_rows, st.integers(1, 5))
def test_expected_rounds_are_those_of_going_through_them_one_by_one(
    shards: list[list[RowLength]], batch_size: int
) -> None:
    num_rounds, num_rows, num_own = Counter[int](), Counter[int](), 0
    for shard in shards:
        waiting, live = sorted(shard, key=lambda row: row.prompt), list[list[int]]()
        while waiting or live:
            while waiting and len(live) < batch_size:
                row = waiting.pop()
                live += [[row.prompt + 1, row.generated - 1]] if row.generated > 1 else []
            if live:
                longest = max(length for length, _ in live)
                num_rounds[longest] += 1
                num_rows[longest] += len(live)
                num_own += sum(length for length, _ in live)
            live = [[length + 1, left - 1] for length, left in live if left > 1]
    found = expected_rounds(shards, batch_size)
    assert {n: count for n, count in enumerate(found.num_rounds) if count} == num_rounds
    assert {n: count for n, count in enumerate(found.num_rows) if count} == num_rows
    assert found.num_own == num_own


def test_too_few_shapes_for_the_windows_are_refused_with_how_many_it_takes() -> None:
    shards = [[RowLength(100, 10)]]
    with pytest.raises(InvalidJob, match=r"leaves 6 shapes, and windows of 1, 2, 3, 5, 9 .* need 7; raise it"):
        plan_shapes(needs_of(shards, 6))
    assert plan_shapes(needs_of(shards, 7)).borders.prefill == ((112, (1, 4)),)


@given(shards_of_rows, st.integers(20, 50), st.booleans(), st.booleans(), st.booleans(), st.booleans())
@settings(deadline=None)
def test_a_drafts_shapes_are_among_those_allowed(
    shards: list[list[RowLength]], max_graphs: int, has_model: bool, has_exit: bool, is_whole: bool, translated: bool
) -> None:
    options = EngineOptions(8, "auto", max_graphs=max_graphs, exit_layer=1 if has_exit else None)
    shapes = plan_job(JobLengths(shards, is_whole), options, [SIZE, DRAFT_SIZE][: 1 + has_model], translated)
    assert len(shapes.keys) + len(shapes.draft_keys) <= max_graphs
    assert bool(shapes.draft_keys) == (has_model or has_exit)
    if has_model:
        assert {key.num_positions for key in shapes.draft_keys if key.phase == "decode"} >= set(DRAFT_WINDOWS)
    if not is_whole:
        assert shapes.target.borders.prefill_length(2047) <= 2048 + 16 and shapes.target.borders.kv[-1] >= 2048


def test_rows_that_were_not_planned_for_run_in_shapes_of_their_own() -> None:
    borders = fixed_borders(64, max_lengths=4)
    assert [bucket.length for bucket in borders.prefill] == [16, 32, 48, 64]
    assert (borders.prefill_length(65), borders.rows_of(128), borders.kv_length(65)) == (128, (1,), 128)
    assert borders.cache_length(1) == 64 and borders.cache_length(65) == 128


@given(st.integers(2, 5000), st.integers(12, 60))
@settings(deadline=None, max_examples=20)
def test_where_nothing_is_known_of_the_rows_the_context_is_covered(context: int, max_keys: int) -> None:
    windows = (1, 3)
    sizes = sizes_for(True, context, 4, windows, max_keys)
    buckets = Buckets(sizes, 4, (0, 2))
    assert len(buckets.warm_up_keys()) <= max_keys
    assert sizes.cache_length(1) >= max(context + windows[-1], sizes.prefill_length(context - 1))
    assert not sizes_for(False, context, 4, windows, max_keys).is_planned


def test_padding_is_counted_apart() -> None:
    padding = Padding()
    assert set(padding.shares().values()) == {None}
    padding.add_prefill(2, 10, 15)
    padding.add_round(4, window=3, kv_length=20, row_lengths=[10, 15], num_kept=3)
    assert padding.shares() == {
        "padded_queries": 0.25,
        "empty_slots": 0.5,
        "masked_kv": 0.375,
        "rejected_window_positions": 0.5,
    }


@given(st.integers(1, 200), st.integers(64, 8192), st.integers(10**8, 10**11))
def test_what_memory_is_said_to_hold_fits_and_one_more_does_not(slots: int, length: int, device_bytes: int) -> None:
    def fits(batch_size: int, kv_length: int) -> bool:
        try:
            MemoryPlan((SIZE,), batch_size, kv_length, batch_size * 9).check(device_bytes)
        except InvalidJob:
            return False
        return True

    plan = MemoryPlan((SIZE,), slots, length, slots * 9)
    most, longest = plan.max_batch_size(device_bytes), plan.max_kv_length(device_bytes)
    assert fits(slots, length) == (slots <= most) == (length <= longest)
    assert not most or (fits(most, length) and not fits(most + 1, length))
    assert not longest or (fits(slots, longest) and not fits(slots, longest + 1))


def test_what_cannot_fit_is_refused_with_the_numbers() -> None:
    plan = MemoryPlan((SIZE, DRAFT_SIZE), batch_size=64, kv_length=4096, num_logits=64 * 9)
    with pytest.raises(InvalidJob) as refused:
        plan.check(2 * 2**30)
    assert str(refused.value) == (
        "weights 0.20 GiB, cache 6.20 GiB (64 slots of 4096 positions), logits 0.32 GiB and 10% for graphs do not fit "
        "into 2.00 GiB of memory; at most --batch-size 14 or --kv-length 759 fits"
    )
    with pytest.raises(InvalidJob, match="use a smaller model or dtype"):
        plan.check(2**27)
