"""The engine refills its slots, can be stopped between rounds, and keeps its cache from call to call."""

import gc
import weakref
from collections.abc import Callable

import pytest

from schemas.generation import Completion, Request
from schemas.job import JobSpec
from tests.engine.conftest import PlainDevice, endings, make_engine, make_requests, reference, tiny_target
from workers.engine import engine as engine_module
from workers.engine.cache import RaggedCache
from workers.engine.engine import Engine
from workers.engine.options import EngineOptions

pytestmark = pytest.mark.engine

REQUESTS = make_requests(7, seed=13)


class Stop(Exception):
    pass


def stop_after(num_calls: int) -> Callable[[], None]:
    calls = iter(range(num_calls))

    def on_round() -> None:
        if next(calls, None) is None:
            raise Stop

    return on_round


@pytest.mark.parametrize("num_calls", [0, 1, 3, 9, 15])
@pytest.mark.parametrize("draft", ["none", "ngram"])
def test_on_round_may_stop_it_and_the_engine_works_anew(draft: str, num_calls: int) -> None:
    target = tiny_target("llama")
    engine = make_engine(target, draft=draft)
    before_stop: list[Completion] = []
    with pytest.raises(Stop):
        before_stop.extend(engine.generate(REQUESTS, stop_after(num_calls)))
    expected = reference(target, REQUESTS)
    assert endings(before_stop).items() <= expected.items()
    assert endings(list(engine.generate(REQUESTS))) == expected


def test_a_run_left_halfway_leaves_nothing_behind() -> None:
    target = tiny_target("gpt2")
    engine = make_engine(target)
    next(engine.generate(REQUESTS))
    assert endings(list(engine.generate(REQUESTS))) == reference(target, REQUESTS)


def test_on_round_is_called_before_every_forward() -> None:
    engine, calls = make_engine(tiny_target("llama")), []
    list(engine.generate(REQUESTS, lambda: calls.append(engine.log.graph_keys.total())))
    assert calls == list(range(engine.log.graph_keys.total()))


def test_a_slot_is_refilled_at_the_next_forward() -> None:
    requests = [Request(i, (1, 2, 3), max_new_tokens=n, seed=0) for i, n in enumerate([2, 9, 9, 5, 5])]
    engine = make_engine(tiny_target("llama"), batch_size=2, draft="none")
    list(engine.generate(requests))
    rounds = sum(count for key, count in engine.log.graph_keys.items() if key.phase == "decode")
    assert rounds == 13  # rows of 2, 9 and 5 tokens share a slot, less a token each: 1 + 8 + 4


def test_completions_come_as_rows_end() -> None:
    requests = [Request(i, (1, 2, 3), max_new_tokens=n, seed=0) for i, n in enumerate([9, 2, 5, 1])]
    completions = make_engine(tiny_target("llama"), batch_size=4, draft="none").generate(requests)
    assert [completion.row_index for completion in completions] == [3, 1, 2, 0]


def test_no_requests_give_no_completions() -> None:
    assert list(make_engine(tiny_target("llama")).generate([])) == []


def test_the_cache_is_kept_while_it_is_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    class CountedCache(RaggedCache):
        def __init__(self, *args: object) -> None:
            made.append(args[2])  # type: ignore[arg-type]
            super().__init__(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(engine_module, "RaggedCache", CountedCache)
    engine = make_engine(tiny_target("llama"))
    for num_tokens in (20, 5, 20, 60, 20):
        list(engine.generate([Request(0, (1,) * num_tokens, 4, seed=0)]))
    assert made == [32, 96]


def test_seconds_inside_forwards_are_counted() -> None:
    engine = make_engine(tiny_target("llama"))
    assert engine.forward_seconds == 0
    list(engine.generate(REQUESTS[:2]))
    first = engine.forward_seconds
    list(engine.generate(REQUESTS[:2]))
    assert 0 < first < engine.forward_seconds


def test_options_are_those_of_the_job() -> None:
    spec = JobSpec(input="in", output="out", model="m", batch_size=5, draft_lengths=(7, 2), ngram_min=2, ngram_max=4)
    options = EngineOptions.of(spec)
    assert options == EngineOptions(5, "ngram", (2, 7), ngram_min=2, ngram_max=4)
    assert options.ladder == options.planned_lengths == (2, 7)
    plain = EngineOptions.of(spec.model_copy(update={"draft": "none"}))
    assert plain.ladder == plain.planned_lengths == (0,)


def test_default_options_run() -> None:
    target = tiny_target("llama")
    engine = Engine(target, PlainDevice(), EngineOptions())
    assert endings(list(engine.generate(REQUESTS))) == reference(target, REQUESTS)


def test_a_cache_that_was_outgrown_is_freed_before_the_next_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(tiny_target("llama"), draft="none")
    list(engine.generate([Request(0, (1, 2), 4, seed=0)]))
    assert engine._runner is not None
    old, seen = weakref.ref(engine._runner.cache), []

    def make_cache(*args: object) -> RaggedCache:
        seen.append(old())
        return RaggedCache(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(engine_module, "RaggedCache", make_cache)
    gc.disable()
    try:
        list(engine.generate([Request(0, (1, 2), 80, seed=0)]))
    finally:
        gc.enable()
    assert seen == [None]
