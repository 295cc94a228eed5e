"""Memory that does not suffice is told apart from other errors, and the session goes on with a smaller batch."""

import weakref

import pytest
import torch

from schemas.errors import OutOfMemory
from schemas.job import JobSpec
from tests.engine.conftest import PlainDevice, endings, make_engine, make_requests, reference, tiny_target
from tests.engine.plain_models import alone, as_plain, plain_tiny
from tests.engine.test_session import encode_all, plan_of, session, spec  # noqa: F401
from workers.engine.cache import RaggedCache
from workers.engine.memory import is_out_of_memory, raising_out_of_memory
from workers.engine.plain.session import GenerateSession

pytestmark = pytest.mark.engine

TOO_MANY_BYTES = 2**60


def test_a_batch_that_does_not_fit_is_out_of_memory_and_a_smaller_one_runs(session, spec, monkeypatch) -> None:  # noqa: F811
    requests = encode_all(session, plan_of(spec))
    session.configure(spec)
    expected = endings(list(session.generate(requests)))

    class LargeCache(RaggedCache):
        def __init__(self, kv_shapes, num_slots, *rest) -> None:
            super().__init__(kv_shapes, num_slots, *rest)
            if num_slots > 2:
                torch.empty(TOO_MANY_BYTES)  # the allocator's own error

    monkeypatch.setattr("workers.engine.engine.RaggedCache", LargeCache)
    session.configure(spec.model_copy(update={"batch_size": 4}))
    with pytest.raises(OutOfMemory, match="does not fit into memory: "):
        list(session.generate(requests))
    session.configure(spec.model_copy(update={"batch_size": 2}))
    assert endings(list(session.generate(requests))) == expected


@pytest.mark.parametrize("draft", [{"draft": "none"}, {"draft": "early-exit", "exit_layer": 1, "draft_lengths": (3,)}])
def test_the_caches_of_a_batch_that_does_not_fit_are_given_back(session, spec, monkeypatch, draft) -> None:  # noqa: F811
    caches = weakref.WeakSet()
    make = RaggedCache.__init__

    def remember(cache, *args) -> None:
        caches.add(cache)
        make(cache, *args)

    monkeypatch.setattr(RaggedCache, "__init__", remember)
    session.configure(spec.model_copy(update={**draft, "seed": 1}))
    requests = encode_all(session, plan_of(spec))
    done = []
    with pytest.raises(OutOfMemory) as raised:
        for completion in session.generate(requests, on_round=lambda: done and torch.empty(TOO_MANY_BYTES)):
            done.append(completion)
            assert len(caches) == 1
    assert done
    assert not caches, raised  # which still holds its traceback
    assert endings(list(session.generate(requests))) == reference(session.target, requests)


def test_an_engine_that_wants_a_longer_cache_gives_the_old_one_back_first(monkeypatch) -> None:
    num_alive = []
    caches = weakref.WeakSet()
    make = RaggedCache.__init__

    def count(cache, *args) -> None:
        num_alive.append(len(caches))
        caches.add(cache)
        make(cache, *args)

    monkeypatch.setattr(RaggedCache, "__init__", count)
    engine = make_engine(tiny_target("llama"), draft="none")
    for num_tokens in (4, 40):
        list(engine.generate(make_requests(2, seed=5, max_new_tokens=num_tokens)))
    assert num_alive == [0, 0]


def test_engine_generate_runs_out_of_memory_and_goes_on() -> None:
    job = JobSpec(input="in", output="out", model="m", engine="generate", device="cpu", batch_size=3)
    plain = GenerateSession(as_plain(plain_tiny("bloom")), PlainDevice(), job)
    requests = make_requests(5, seed=3)
    with pytest.raises(OutOfMemory, match=r"does not fit into memory: .*can't allocate memory"):
        list(plain.generate(requests, on_round=lambda: torch.empty(TOO_MANY_BYTES)))
    plain.configure(job.model_copy(update={"batch_size": 1}))
    admitted: list = []
    completions = []
    for completion in plain.generate(requests, on_admit=admitted.append):
        completions.append(completion)
        assert admitted[-1] == [(completion.row_index, completion.sample_index)]
    assert len(admitted) == len(requests)
    assert endings(completions) == alone("bloom", requests)


def test_what_was_held_is_given_back_first() -> None:
    def greedy():
        yield torch.zeros(1)
        yield torch.empty(TOO_MANY_BYTES)

    released = []
    completions = raising_out_of_memory(greedy(), lambda: released.append(True))
    next(completions)
    with pytest.raises(OutOfMemory) as raised:
        next(completions)
    assert released == [True]
    assert raised.value.__context__ is None and raised.value.__cause__ is None


def test_other_errors_stay_what_they_are() -> None:
    def broken():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
        yield

    with pytest.raises(RuntimeError, match="mat1"):
        list(raising_out_of_memory(broken(), release=lambda: None))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        RuntimeError("synStatus=8 [Device not found] Allocation failed for size::1024"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_what_allocators_say_is_out_of_memory(error: BaseException) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize("draft", ["none", "ngram"])
def test_every_row_is_announced_before_it_takes_its_slot(draft: str) -> None:
    target = tiny_target("llama")
    requests = make_requests(7, seed=13)
    engine, admitted = make_engine(target, draft=draft, batch_size=3), []
    in_batch = set()
    completions = []

    def on_admit(keys) -> None:
        admitted.extend(keys)
        in_batch.update(keys)
        assert len(in_batch) <= 3

    for completion in engine.generate(requests, on_admit=on_admit):
        key = (completion.row_index, completion.sample_index)
        in_batch.remove(key)
        completions.append(completion)
    assert sorted(admitted) == sorted(request.key for request in requests)
    assert endings(completions) == reference(target, requests)
