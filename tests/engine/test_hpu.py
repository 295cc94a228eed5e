"""What a Gaudi card's software has to have, and what is said where it has not; against a stand-in for it."""

import importlib
import inspect
from typing import Any

import pytest
import torch

from schemas.errors import DeviceUnavailable, InvalidJob
from tests.habana_fake import install
from tests.habana_fake.card import MEMORY_BYTES, card
from workers.devices import get_device, habana, hpu
from workers.devices.environment import LAZY_MODE, HpuMode
from workers.devices.hpu import HpuDevice

pytestmark = pytest.mark.engine

# As in the sources of releases 1.21 to 1.24: what a call may give, by name and in order.
SIGNATURES = {
    "core.mark_step": "(device_str='', sync=False)",
    "core.hpu_set_env": "(model=None)",
    "core.hpu_initialize": "(model=None, mark_only_scales_as_const=False, optimizer=None, args=None)",
    "hpu.init": "()",
    "hpu.is_available": "()",
    "hpu.device_count": "()",
    "hpu.current_device": "()",
    "hpu.synchronize": "()",
    "hpu.get_device_name": "(device=None)",
    "hpu.memory_stats": "(device=None)",
    "hpu.mem_get_info": "(device=None)",
    "hpu.metric_global": "(name)",
    "hpu.metric_localcontext": "(name)",
    "hpu.wrap_in_hpu_graph": "(module, asynchronous=False, disable_tensor_cache=False, dry_run=False, max_graphs=None)",
    "hpex.kernels.FusedSDPA.apply": "(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, "
    "softmax_mode='None', recompute_mode=None, valid_seq_len=None, seq_padding_type='left')",
}
USED = ["core.mark_step", *(f"hpu.{name}" for name in ("init", "current_device", "synchronize", "mem_get_info"))]
USED += ["hpu.metric_global", "hpex.kernels.FusedSDPA"]


def find(path: str) -> Any:
    module, _, name = path.removesuffix(".apply").rpartition(".")
    found = getattr(importlib.import_module(f"habana_frameworks.torch.{module}"), name)
    return found.apply if path.endswith(".apply") else found


@pytest.mark.parametrize("path", SIGNATURES)
def test_the_stand_in_takes_what_the_software_takes(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    install(monkeypatch, "lazy")
    signature = inspect.signature(find(path))
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    assert str(inspect.Signature(bare)) == SIGNATURES[path]


def test_hpu_graphs_are_there_in_lazy_mode_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "eager")
    with pytest.raises(AttributeError):
        find("hpu.wrap_in_hpu_graph")


@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_a_card_says_what_it_is(monkeypatch: pytest.MonkeyPatch, mode: HpuMode) -> None:
    install(monkeypatch, mode)
    device = get_device("hpu")
    assert (device.name, device.torch_device, device.static_shapes) == ("hpu", torch.device("hpu", 0), True)
    assert device.dtype("auto") == torch.bfloat16
    assert device.memory_bytes() == (MEMORY_BYTES - (1 << 30), MEMORY_BYTES)
    assert card.is_acquired


def test_work_is_handed_over_after_a_step_and_before_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "lazy")
    device = get_device("hpu")
    device.step_end()
    assert card.num_mark_steps == 1
    device.synchronize()
    assert card.num_mark_steps == 2
    device.compile(lambda states: states)(torch.ones(2).to(device.torch_device))
    assert card.num_mark_steps == 3


@pytest.mark.parametrize("path", USED)
@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_a_name_that_a_release_lacks_is_named(monkeypatch: pytest.MonkeyPatch, path: str, mode: HpuMode) -> None:
    install(monkeypatch, mode)
    module, _, name = path.rpartition(".")
    monkeypatch.delattr(importlib.import_module(f"habana_frameworks.torch.{module}"), name)
    message = f"has no habana_frameworks.torch.{path}; install one that has it, as 1.21 to 1.24 do"
    with pytest.raises(InvalidJob, match=message):
        get_device("hpu")


def test_a_release_without_hpu_graphs_is_sent_to_eager_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "lazy")
    monkeypatch.delattr(importlib.import_module("habana_frameworks.torch.hpu"), "wrap_in_hpu_graph")
    with pytest.raises(InvalidJob, match=r"has no wrap_in_hpu_graph: .*start the worker with PT_HPU_LAZY_MODE=0"):
        get_device("hpu")


def test_software_that_is_not_there_is_named_and_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAZY_MODE, "1")
    assert not habana.is_present()
    with pytest.raises(InvalidJob, match=r"habana_frameworks.torch.core cannot be imported .*release 1.21 to 1.24"):
        get_device("hpu")


def test_a_mode_that_nobody_chose_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "lazy")
    monkeypatch.delenv(LAZY_MODE)
    with pytest.raises(InvalidJob, match="PT_HPU_LAZY_MODE is not set"):
        get_device("hpu")


@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_a_card_that_another_process_holds_is_fatal(monkeypatch: pytest.MonkeyPatch, mode: HpuMode) -> None:
    install(monkeypatch, mode).taken_by = "Device already acquired"
    assert hpu.is_present()
    with pytest.raises(DeviceUnavailable) as raised:
        HpuDevice()
    assert str(raised.value) == (
        "device hpu: the Gaudi card cannot be acquired (synStatus=8 [Device not found] Device acquire failed. Device "
        "already acquired); end the process that holds it, or pin this worker to another card"
    )


def test_without_a_card_none_is_present(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "lazy").is_there = False
    assert not hpu.is_present()
    with pytest.raises(DeviceUnavailable):
        get_device("hpu")
