"""Devices: chosen by name and by what is there, and what a Gaudi card is told, by a stand-in for its package."""

import logging
import sys
from types import ModuleType
from typing import get_args

import pytest
import torch

import workers.devices
from schemas.errors import InvalidJob
from schemas.job import DeviceKind
from workers.devices import cuda, get_device, hpu
from workers.devices.base import named_dtype

pytestmark = pytest.mark.engine


@pytest.fixture
def habana(monkeypatch):
    """A habana_frameworks that has just the names that are used, and notes calls."""
    calls = []

    def wrap_in_hpu_graph(module, disable_tensor_cache):
        calls.append(("wrap_in_hpu_graph", disable_tensor_cache))
        return module

    package, torch_module, core, api = (ModuleType(name) for name in ("h", "h.torch", "core", "hpu"))
    package.__path__ = torch_module.__path__ = []
    core.mark_step = lambda: calls.append("mark_step")
    api.synchronize = lambda: calls.append("synchronize")
    api.mem_get_info = lambda: (3, 4)
    api.is_available = lambda: True
    api.wrap_in_hpu_graph = wrap_in_hpu_graph
    core.calls, core.hpu = calls, api
    names = {"": package, ".torch": torch_module, ".torch.core": core, ".torch.hpu": api}
    for name, module in names.items():
        monkeypatch.setitem(sys.modules, f"habana_frameworks{name}", module)
    monkeypatch.setattr(hpu.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    # Plain torch builds know the device type only by name.
    monkeypatch.setattr(hpu.torch, "device", lambda name: name)
    return core


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


def test_compiling_on_a_cpu_changes_nothing():
    assert get_device("cpu").compile(len) is len


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
    factories = {kind: lambda threads, kind=kind: kind for kind in ("hpu", "cuda", "cpu")}
    monkeypatch.setattr(workers.devices, "_FACTORIES", factories)
    with caplog.at_level(logging.INFO):
        assert get_device("auto") == chosen
    assert f"device auto: {chosen}, since " in caplog.text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA card here")
def test_a_missing_cuda_card_is_named_and_not_replaced():
    with pytest.raises(InvalidJob, match="device cuda: torch sees no CUDA card"):
        get_device("cuda")


def test_missing_gaudi_software_is_named_and_not_replaced(monkeypatch):
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    assert not hpu.is_present()
    with pytest.raises(InvalidJob, match="device hpu: habana_frameworks cannot be imported"):
        get_device("hpu")


def test_a_gaudi_card_records_graphs_and_marks_steps(habana):
    device = get_device("hpu")
    assert (device.name, device.torch_device, device.static_shapes) == ("hpu", "hpu", True)
    assert device.dtype("auto") == torch.bfloat16
    assert device.memory_bytes() == (3, 4)
    forward = device.compile(lambda states, scale: states * scale)
    assert torch.equal(forward(torch.ones(2), scale=3), torch.full((2,), 3.0))
    device.step_end()
    device.synchronize()
    assert habana.calls == [("wrap_in_hpu_graph", True), "mark_step", "mark_step", "synchronize"]


def test_lazy_mode_is_fixed_before_the_first_import(habana, monkeypatch):
    monkeypatch.delenv("PT_HPU_LAZY_MODE")
    get_device("hpu")
    assert hpu.os.environ["PT_HPU_LAZY_MODE"] == "1"
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "0")
    get_device("hpu")
    assert hpu.os.environ["PT_HPU_LAZY_MODE"] == "0"


def test_eager_mode_is_refused_with_the_way_out(habana):
    del habana.hpu.wrap_in_hpu_graph
    with pytest.raises(InvalidJob, match="start the worker with PT_HPU_LAZY_MODE=1"):
        get_device("hpu")


def test_a_name_that_a_release_lacks_is_named(habana):
    del habana.hpu.mem_get_info
    with pytest.raises(InvalidJob, match="this release of habana_frameworks has no mem_get_info"):
        get_device("hpu")


def test_a_card_that_is_taken_is_fatal(habana):
    habana.hpu.is_available = lambda: False
    assert not hpu.is_present()
    with pytest.raises(InvalidJob, match="no Gaudi card is free for this process"):
        get_device("hpu")
