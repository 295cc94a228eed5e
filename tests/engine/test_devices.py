"""Devices: chosen by name and by what is there."""

import functools
import logging
from typing import get_args

import pytest
import torch

import workers.devices
from schemas.errors import InvalidJob
from schemas.job import DeviceKind
from tests.engine.conftest import endings, make_requests, reference, tiny_target
from workers.devices import compiled, cuda, get_device, hpu
from workers.devices.base import named_dtype
from workers.engine.attention import GROUPED
from workers.engine.buckets import BucketPolicy
from workers.engine.engine import Engine
from workers.engine.options import EngineOptions

ONE_SIZE = BucketPolicy(prefill_step=48, prefill_rows=(1,), kv_step=96)

pytestmark = pytest.mark.engine


def test_every_kind_of_device_but_auto_has_a_factory():
    assert set(workers.devices._FACTORIES) == set(get_args(DeviceKind)) - {"auto"}


def test_a_cpu_takes_the_threads_it_is_given():
    before = torch.get_num_threads()
    try:
        get_device("cpu", threads=1)
        assert torch.get_num_threads() == 1
        get_device("cpu")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_cpu_computes_in_float32_and_takes_any_shape():
    device = get_device("cpu")
    assert (device.name, device.torch_device, device.static_shapes) == ("cpu", torch.device("cpu"), False)
    assert device.dtype("auto") == torch.float32
    assert device.dtype("bfloat16") == torch.bfloat16
    free, total = device.memory_bytes()
    assert 0 < free < total


def test_compiling_on_a_cpu_changes_nothing_unless_asked_for():
    assert get_device("cpu").compile(len) is len
    assert get_device("cpu", is_compiled=True).compile(len) is not len


@pytest.mark.parametrize("draft", ["ngram", "early-exit"])
def test_a_forward_is_compiled_whole_and_gives_the_same_tokens(monkeypatch, draft):
    # The backend that runs what it is given: what is at stake is whether forwards can be compiled, and not how fast.
    monkeypatch.setattr(compiled.torch, "compile", functools.partial(torch.compile, backend="eager"))
    target, requests = tiny_target("llama", GROUPED), make_requests(4)
    options = EngineOptions(
        batch_size=3, draft=draft, draft_lengths=(3,), exit_layer=1 if draft == "early-exit" else None
    )
    engine = Engine(target, get_device("cpu", threads=1, is_compiled=True), options, policy=ONE_SIZE)
    assert endings(list(engine.generate(requests))) == reference(target, requests)


@pytest.mark.parametrize("asked", ["float32", "bfloat16", "float16"])
def test_a_dtype_asked_for_is_the_one_taken(asked):
    assert str(named_dtype(asked, auto=torch.float64)) == f"torch.{asked}"
    assert named_dtype("auto", auto=torch.float64) == torch.float64


@pytest.mark.parametrize(
    ("has_hpu", "has_cuda", "chosen"),
    [(True, True, "hpu"), (False, True, "cuda"), (False, False, "cpu")],
)
def test_auto_takes_the_first_that_is_there_and_says_why(monkeypatch, caplog, has_hpu, has_cuda, chosen):
    monkeypatch.setattr(hpu, "is_present", lambda: has_hpu)
    monkeypatch.setattr(cuda, "is_present", lambda: has_cuda)
    factories = {kind: lambda threads, is_compiled, kind=kind: kind for kind in ("hpu", "cuda", "cpu")}
    monkeypatch.setattr(workers.devices, "_FACTORIES", factories)
    with caplog.at_level(logging.INFO):
        assert get_device("auto") == chosen
    assert f"device auto: {chosen}, since " in caplog.text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA card here")
def test_a_missing_cuda_card_is_named_and_not_replaced():
    with pytest.raises(InvalidJob, match="device cuda: torch sees no CUDA card"):
        get_device("cuda")
