"""What would go wrong on a Gaudi card without a word is seen on the stand-in for one: stale graphs, masks, scalars."""

import gc
import itertools
import logging
import weakref
from typing import Any, ClassVar

import pytest
import torch

from schemas.errors import InvalidJob
from tests.engine.conftest import tiny_model
from tests.engine.on_card import expected, on_card, run
from tests.habana_fake import install
from tests.habana_fake.card import card
from tests.habana_fake.graph import RecordedGraph
from workers.devices import hpu_lazy
from workers.devices.hpu import HpuDevice
from workers.devices.hpu_lazy import LazyMode
from workers.engine import engine as engine_module
from workers.engine import runner as runner_module
from workers.engine.constraints import Logits
from workers.engine.masks import MaskBuilder
from workers.engine.runner import Forwards, ModelRunner
from workers.engine.self_check import check_ragged_decoding

pytestmark = pytest.mark.engine


@pytest.fixture
def lazy(monkeypatch: pytest.MonkeyPatch) -> HpuDevice:
    install(monkeypatch, "lazy")
    return HpuDevice()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> HpuDevice:
    install(monkeypatch, "eager")
    return HpuDevice()


def test_a_replay_over_stale_inputs_is_seen(lazy: HpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    target, replay = on_card("llama", lazy), RecordedGraph.replay
    monkeypatch.setattr(RecordedGraph, "replay", lambda self, inputs: replay(self, self.inputs))
    assert run(target, lazy)[1] != expected()


def test_what_a_forward_returns_outlives_the_next_replay(lazy: HpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outputs_of_two_calls(lazy) == [[2.0, 2.0], [6.0, 6.0]]
    monkeypatch.setattr(hpu_lazy, "_copied", lambda values: values)
    assert outputs_of_two_calls(lazy) == [[6.0, 6.0], [6.0, 6.0]]


def test_a_view_is_the_same_graph_as_a_tensor_of_its_own(lazy: HpuDevice) -> None:
    forward = lazy.compile(lambda states: states * 2)
    with torch.inference_mode():
        states = torch.arange(6.0).to(lazy.torch_device)
        assert [forward(view).tolist() for view in (states[:2], states[4:], states[::3])] == [[0, 2], [8, 10], [0, 6]]
    assert lazy.num_compilations == 1


class Doubling:
    def double(self, states: torch.Tensor) -> torch.Tensor:
        return states * 2


def test_what_a_forward_holds_is_freed_with_it(lazy: HpuDevice) -> None:
    doubling = Doubling()
    held, forward = weakref.ref(doubling), lazy.compile(doubling.double)
    with torch.inference_mode():
        forward(torch.ones(2).to(lazy.torch_device))
    gc.disable()
    try:
        del doubling, forward
        assert held() is None
    finally:
        gc.enable()


def outputs_of_two_calls(device: HpuDevice) -> list[list[float]]:
    forward = device.compile(lambda states: states * 2)
    with torch.inference_mode():
        outputs = [forward(torch.full((2,), value).to(device.torch_device)) for value in (1.0, 3.0)]
        return [output.tolist() for output in outputs]


class FutureMasks(MaskBuilder):
    """Lets each query see the position after its own."""

    def __call__(self, query_positions: torch.Tensor, kv_length: int) -> Any:
        return super().__call__(query_positions + 1, kv_length)


def test_a_wrong_mask_is_seen(lazy: HpuDevice) -> None:
    target = on_card("llama", lazy)
    target.attention_masks = FutureMasks(target.config, target.model.dtype)
    assert run(target, lazy)[1] != expected()
    with pytest.raises(InvalidJob, match="decoding over a cache of ragged rows gives other logits"):
        check_ragged_decoding(target)


def test_a_mask_that_is_not_to_be_added_is_refused(lazy: HpuDevice) -> None:
    target = on_card("llama", lazy)
    target.attention_masks.additive_dtype = None
    with pytest.raises(RuntimeError, match=r"a mask of torch\.bool is added to scores"):
        run(target, lazy)


class HiddenPositions(Forwards):
    """Takes the positions from Python, where a graph does not look again."""

    hidden: ClassVar[torch.Tensor]

    def decode(self, input_ids: torch.Tensor, positions: torch.Tensor, *args: Any) -> Logits:
        return super().decode(input_ids, self.hidden, *args)


class HidingRunner(ModelRunner):
    def decode(self, input_ids: torch.Tensor, positions: torch.Tensor, *args: Any) -> Logits:
        HiddenPositions.hidden = positions
        return super().decode(input_ids, positions, *args)


def test_what_changes_outside_of_a_graph_is_seen(lazy: HpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "ModelRunner", HidingRunner)
    monkeypatch.setattr(runner_module, "Forwards", HiddenPositions)
    assert run(on_card("llama", lazy), lazy)[1] != expected()


class CountedSteps(ModelRunner):
    """Gives each forward a scalar that no other has."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._step = itertools.count()
        forwards = Forwards(self.target, self.cache)
        self._counted = self._device.compile(lambda step, *given: forwards.decode(*given))

    def decode(self, input_ids: torch.Tensor, positions: torch.Tensor, kv_length: int, at: Any = None) -> Logits:
        logits: Logits = self._counted(next(self._step), input_ids, positions, kv_length, at)
        return logits


def test_a_scalar_that_changes_in_each_step_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(monkeypatch, "lazy")
    device = HpuDevice(max_graphs=12)
    monkeypatch.setattr(engine_module, "ModelRunner", CountedSteps)
    with caplog.at_level(logging.WARNING):
        engine, found = run(on_card("llama", device), device)
    assert found == expected()
    assert isinstance(device.mode, LazyMode) and engine.device is device
    assert (device.mode.num_graphs, card.num_compilations) == (12, 12)
    assert device.mode.num_ungraphed > 0
    assert "12 graphs are recorded, no more fit; (" in caplog.text


def test_more_graphs_than_the_most_would_not_go_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "lazy")
    device = HpuDevice(max_graphs=2)
    monkeypatch.setattr(LazyMode, "admit", lambda self, key: True)
    with pytest.raises(RuntimeError, match="max_graphs 2 is exceeded"):
        run(on_card("llama", device), device)


def test_graphs_of_an_engine_that_is_gone_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "lazy")
    device = HpuDevice(max_graphs=12)
    target = on_card("llama", device)
    for _ in range(2):
        assert run(target, device)[1] == expected()
    assert isinstance(device.mode, LazyMode)
    assert device.mode.num_ungraphed == 0


def test_a_host_read_while_a_graph_is_captured_is_refused(lazy: HpuDevice) -> None:
    forward = lazy.compile(lambda states: states * states.sum().item())
    with torch.inference_mode(), pytest.raises(RuntimeError, match="the host reads a tensor while a graph is captured"):
        forward(torch.ones(2).to(lazy.torch_device))


def test_tensors_of_host_and_card_do_not_mix(lazy: HpuDevice) -> None:
    with torch.inference_mode(), pytest.raises(RuntimeError, match="a tensor on the host meets one on hpu:0"):
        torch.ones(2).to(lazy.torch_device) + torch.ones(2)


def test_eager_mode_does_not_go_on_uncompiled(eager: HpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_break(self: Any, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        torch._dynamo.graph_break()
        return hidden_states

    model = tiny_model("llama")
    monkeypatch.setattr(type(model.model.layers[0]), "forward", with_break)
    eager.prepare(model)
    with torch.inference_mode(), pytest.raises(torch._dynamo.exc.Unsupported):
        model.model.layers[0](torch.zeros(1, 1, 32))
