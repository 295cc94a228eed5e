"""A run uses planned shapes only, and no operation whose result or shape has to be waited for."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from schemas.generation import Request
from tests.engine.conftest import (
    SMALL_BUCKETS,
    PlainDevice,
    endings,
    make_batch,
    make_engine,
    make_requests,
    reference,
    tiny_target,
)
from workers.engine.buckets import (
    FINE_BUCKETS,
    BucketBorders,
    BucketPolicy,
    Buckets,
    GraphKey,
    PrefillBucket,
    round_up,
)
from workers.engine.engine import Engine
from workers.engine.options import EngineOptions
from workers.engine.speculative import speculative_round

pytestmark = pytest.mark.engine

WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique2", "item"}
EXACT_SIZES = BucketPolicy(prefill_step=1, prefill_rows=(1,), kv_step=1)
PADDED_PREFILLS = BucketPolicy(prefill_step=16, prefill_rows=(2, 4), kv_step=32)


@pytest.mark.parametrize("draft", ["none", "ngram"])
@pytest.mark.parametrize("policy", [SMALL_BUCKETS, EXACT_SIZES, PADDED_PREFILLS, FINE_BUCKETS])
def test_a_run_stays_within_the_planned_shapes(policy: BucketPolicy, draft: str) -> None:
    target, requests = tiny_target("llama"), make_requests(9)
    engine = make_engine(target, draft=draft, policy=policy)
    assert endings(list(engine.generate(requests))) == reference(target, requests)
    longest = max(len(request.prompt_token_ids) for request in requests)
    assert set(engine.log.graph_keys) <= set(engine.buckets.planned_keys(longest, longest + 16))
    assert isinstance(engine.device, PlainDevice)
    assert engine.device.num_steps == engine.log.graph_keys.total()


@pytest.mark.parametrize("draft", ["ngram", "model", "early-exit"])
@pytest.mark.parametrize("deterministic", [False, True])
def test_where_each_shape_is_a_compilation_all_are_run_before_the_first_row(draft: str, deterministic: bool) -> None:
    target = tiny_target("llama")
    options = EngineOptions(3, draft, (0, 2, 4), deterministic=deterministic, kv_length=64, exit_layer=1, max_graphs=12)
    engine = Engine(target, PlainDevice(static_shapes=True), options, target)
    began = make_requests(9)
    assert endings(list(engine.generate(began))) == reference(target, began)
    shapes = engine.shapes()
    assert shapes["num_new"] == 0 and shapes["new"] == []
    assert engine.log.warmed == set(engine.buckets.warm_up_keys()) and 1 < len(engine.log.warmed) <= 12
    assert shapes["num_warmed"] == len(engine.log.warmed) + (0 if draft == "ngram" else len(engine._logs[1].warmed))


@pytest.mark.parametrize("draft", ["none", "ngram"])
def test_what_a_run_computes_in_vain_is_counted(draft: str) -> None:
    requests = make_requests(9)
    engine = make_engine(tiny_target("llama"), draft=draft)
    completions = list(engine.generate(requests))
    padding, keys = engine.padding, engine.log.graph_keys
    query = sum(n * key.num_rows * key.num_positions for key, n in keys.items() if key.phase == "prefill")
    assert padding.query == query
    assert padding.query - padding.padded_query == sum(len(request.prompt_token_ids) for request in requests)
    decodes = {key: n for key, n in keys.items() if key.phase == "decode"}
    num_row_rounds = sum(completion.statistics.num_target_steps for completion in completions)
    assert padding.slot == 3 * sum(decodes.values()) and padding.slot - padding.empty_slot == num_row_rounds
    num_kept = sum(len(c.token_ids) - 1 + c.statistics.num_cut_target_tokens for c in completions)
    assert padding.window - padding.rejected_window == num_kept
    assert (padding.rejected_window == 0) == (draft == "none")
    assert 0 < padding.masked_kv < padding.kv <= sum(n * 3 * key.kv_length for key, n in decodes.items())


def test_a_shape_that_was_not_warmed_up_is_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    borders = BucketBorders((PrefillBucket(16, (1,)),), (64,))
    engine = make_engine(tiny_target("llama"), policy=borders)
    list(engine.generate([Request(0, tuple(range(20)), 4, seed=0)]))
    key = GraphKey("prefill", 1, 32, 0)
    assert engine.shapes()["new"] == [{**key._asdict(), "num_forwards": 1}]
    assert [record.getMessage() for record in caplog.records if "not warmed up" in record.getMessage()] == [
        f"a shape that was not warmed up, and is compiled now: {key}"
    ]


@pytest.mark.parametrize("draft", ["ngram", "suffix", "model", "early-exit"])
@pytest.mark.parametrize("verification", ["coupled", "rejection"])
def test_a_round_waits_for_nothing_but_its_one_copy(draft: str, verification: str) -> None:
    target = tiny_target("llama")
    requests = make_requests(3, temperature=0.8, top_k=7, top_p=0.9, min_p=0.01, repetition_penalty=1.1)
    options = {"draft": draft, "verification": verification, "draft_model": target, "exit_layer": 1}
    batch = make_batch(target, requests, **options)
    with OperationNames() as names:
        speculative_round(batch)
    assert "scatter_" in names.seen
    assert not names.seen & WAITS


class OperationNames(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """The names of all operations that ran."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@given(st.integers(1, 5000), st.integers(1, 300))
def test_rounding_up_gives_the_smallest_multiple(number: int, step: int) -> None:
    rounded = round_up(number, step)
    assert rounded % step == 0 and number <= rounded < number + step


@given(st.integers(1, 20), st.sets(st.integers(1, 9), min_size=1))
def test_prefill_rows_pad_only_below_the_smallest(num_waiting: int, allowed: set[int]) -> None:
    rows = Buckets(BucketPolicy(16, tuple(sorted(allowed)), 32), 8, (0,)).prefill_rows(num_waiting, 16)
    assert rows in allowed
    assert rows <= num_waiting or rows == min(allowed)
    assert not any(rows < other <= num_waiting for other in allowed)


@given(st.integers(1, 500), st.integers(1, 200), st.integers(1, 9))
def test_the_cache_holds_prompt_buckets_and_overrunning_windows(prompt: int, generated: int, window: int) -> None:
    buckets = Buckets(BucketPolicy(128, (1,), 64), 8, (window - 1,))
    length = buckets.cache_length(prompt, prompt + generated)
    assert length >= prompt + generated + window and length >= buckets.prefill_length(prompt)
    assert torch.tensor([buckets.kv_length(n) for n in (1, prompt + generated - 1 + window)]).max() <= length
