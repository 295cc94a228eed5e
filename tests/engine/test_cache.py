"""Keys and values of accepted tokens are those of a fresh forward, and slots keep nothing for the next row."""

import pytest
import torch

from tests.engine.conftest import (
    PlainDevice,
    endings,
    make_batch,
    make_engine,
    make_requests,
    reference,
    tiny_target,
)
from workers.engine.cache import KVShape, RaggedCache
from workers.engine.runner import ForwardLog, ModelRunner
from workers.engine.speculative import speculative_round
from workers.engine.target import Target

pytestmark = pytest.mark.engine

B, K, LENGTH = 3, 3, 96


def runner_with_slots(target: Target, num_slots: int) -> ModelRunner:
    cache = RaggedCache(target.kv_shapes, num_slots, LENGTH, target.device)
    return ModelRunner(target, PlainDevice(), cache, ForwardLog())


def fresh_cache(target: Target, tokens: list[int]) -> RaggedCache:
    runner = runner_with_slots(target, 1)
    with torch.inference_mode():
        runner.prefill(torch.tensor([tokens]), torch.tensor([0]), torch.tensor([len(tokens) - 1]))
    return runner.cache


def test_after_every_round_the_cache_equals_a_fresh_prefill(family: str) -> None:
    target = tiny_target(family)
    batch, finished = make_batch(target, make_requests(B, max_new_tokens=12), batch_size=B, k=K), []
    for _ in range(6):
        finished += speculative_round(batch)
        assert batch.rows
        for row in batch.rows:
            held = [*row.request.prompt_token_ids, *row.generated][:-1]  # the last token is yet to be run
            assert_slot_holds(batch.runner.cache, row.slot, fresh_cache(target, held), len(held))
    rows = [*finished, *batch.rows]
    assert sum(len(row.generated) for row in rows) > 7 * len(rows), "no drafted token was accepted"


def assert_slot_holds(cache: RaggedCache, slot: int, fresh: RaggedCache, length: int) -> None:
    for layer in cache.keys:
        for ours, theirs in ((cache.keys, fresh.keys), (cache.values, fresh.values)):
            torch.testing.assert_close(
                ours[layer][slot, :, :length], theirs[layer][0, :, :length], rtol=1e-5, atol=1e-5
            )


@pytest.mark.parametrize("draft", ["none", "ngram"])
def test_nothing_of_a_slots_last_row_reaches_the_next(family: str, draft: str) -> None:
    target, requests = tiny_target(family), make_requests(5)
    engine = make_engine(target, draft=draft)
    list(engine.generate(requests))
    assert engine._runner is not None
    for buffer in (*engine._runner.cache.keys.values(), *engine._runner.cache.values.values()):
        buffer.fill_(float("nan"))
    assert endings(list(engine.generate(requests))) == reference(target, requests)


def test_a_new_cache_is_all_zeros() -> None:
    cache = RaggedCache({0: KVShape(2, 4, 6, torch.float32)}, 3, 8, "cpu")
    assert cache.keys[0].shape == (4, 2, 8, 4) and cache.values[0].shape == (4, 2, 8, 6)
    assert not cache.keys[0].any() and not cache.values[0].any()


def test_windows_are_scattered_to_each_rows_own_positions() -> None:
    cache = RaggedCache({0: KVShape(1, 1, 1, torch.float32)}, 2, 6, "cpu")
    cache.at_windows(torch.tensor([[0, 1], [3, 4]]), kv_length=5)
    new = torch.tensor([[1.0, 2.0], [3.0, 4.0]])[:, None, :, None]
    keys, values = cache.update(new, -new, 0)
    assert keys[:, 0, :, 0].tolist() == [[1, 2, 0, 0, 0], [0, 0, 0, 3, 4]]
    assert values[:, 0, :, 0].tolist() == [[-1, -2, 0, 0, 0], [0, 0, 0, -3, -4]]


def test_prompts_replace_all_of_their_slot_and_of_no_other() -> None:
    cache = RaggedCache({0: KVShape(1, 1, 1, torch.float32)}, 2, 4, "cpu")
    cache.keys[0].fill_(9)
    cache.at_prompts(torch.tensor([1, cache.scratch_slot]))
    new = torch.tensor([[1.0, 2.0], [5.0, 6.0]])[:, None, :, None]
    keys, _ = cache.update(new, new, 0)
    assert keys is new
    assert cache.keys[0][:, 0, :, 0].tolist() == [[9, 9, 9, 9], [1, 2, 0, 0], [5, 6, 0, 0]]
