"""Whole jobs on a stand-in for a Gaudi card, in both modes: the tokens are the CPU's."""

from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import SMALL_BUCKETS, PlainDevice, endings, make_engine, make_requests, tiny_target
from tests.engine.on_card import REQUESTS, expected, on_card, run
from tests.engine.tiny_folder import make_folder
from tests.habana_fake import install
from tests.habana_fake.card import card
from workers.devices import get_device
from workers.devices.hpu import HpuDevice
from workers.devices.hpu_lazy import LazyMode
from workers.engine.attention import FUSED
from workers.engine.buckets import BucketPolicy
from workers.engine.engine import Engine
from workers.engine.models import load_target
from workers.engine.options import EngineOptions
from workers.engine.self_check import check_ragged_decoding

pytestmark = pytest.mark.engine

FEW_SHAPES = BucketPolicy(prefill_step=48, prefill_rows=(1,), kv_step=96)


@pytest.fixture
def lazy(monkeypatch: pytest.MonkeyPatch) -> HpuDevice:
    install(monkeypatch, "lazy")
    return HpuDevice()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> HpuDevice:
    install(monkeypatch, "eager")
    return HpuDevice()


@pytest.mark.parametrize("draft", ["none", "ngram", "model", "early-exit"])
def test_lazy_mode_gives_the_tokens_of_the_cpu(lazy: HpuDevice, draft: str) -> None:
    target, exit_layer = on_card("llama", lazy), 1 if draft == "early-exit" else None
    assert run(target, lazy, draft, exit_layer=exit_layer)[1] == expected()
    assert card.num_replays > 0


@pytest.mark.parametrize("family", ["qwen2", "gpt_neox", "opt", "gemma", "gemma2", "gpt2"])
def test_lazy_mode_gives_the_tokens_of_the_cpu_in_every_family(lazy: HpuDevice, family: str) -> None:
    target = on_card(family, lazy)
    check_ragged_decoding(target)
    assert run(target, lazy)[1] == expected(family)


def test_eager_mode_gives_the_tokens_of_the_cpu(eager: HpuDevice) -> None:
    target = on_card("llama", eager)
    engine, found = run(target, eager, policy=FEW_SHAPES)
    assert found == expected()
    num_layers = target.config.num_hidden_layers
    assert card.compiled.count("layer") >= len(engine.log.graph_keys) * num_layers > 0
    num_compilations = eager.num_compilations
    assert run(target, eager, policy=FEW_SHAPES)[1] == expected()
    assert eager.num_compilations == num_compilations


def test_each_planned_shape_is_one_graph_and_no_more(lazy: HpuDevice) -> None:
    engine, _ = run(on_card("llama", lazy), lazy)
    assert isinstance(lazy.mode, LazyMode)
    assert lazy.mode.num_graphs == len(engine.log.graph_keys) == lazy.num_compilations
    list(engine.generate(REQUESTS))
    assert lazy.mode.num_graphs == lazy.num_compilations


def test_a_card_attends_by_its_own_kernel(lazy: HpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    target = on_card("llama", lazy)
    assert target.model.config._attn_implementation == FUSED
    calls: list[str] = []
    kernel = lazy._names.fused_sdpa.apply
    monkeypatch.setattr(lazy._names.fused_sdpa, "apply", lambda *args: (calls.append("called"), kernel(*args))[1])
    run(target, lazy)
    assert calls


def test_a_model_that_is_loaded_onto_a_card_gives_the_tokens_of_the_cpu(
    lazy: HpuDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, prepared = str(make_folder(tmp_path)), []
    monkeypatch.setattr(lazy.mode, "prepare", prepared.append)
    on_cpu = load_target(folder, None, "float32", get_device("cpu", threads=1))
    target = load_target(folder, None, "float32", lazy)
    assert prepared == [target.model]
    assert target.device == lazy.torch_device
    assert target.model.config._attn_implementation == FUSED
    expected_tokens = endings(list(make_engine(on_cpu).generate(REQUESTS)))
    assert run(target, lazy)[1] == expected_tokens


@pytest.mark.parametrize(("draft", "verification"), [("ngram", "coupled"), ("model", "rejection")])
def test_sampling_on_a_card_draws_the_tokens_of_the_cpu(lazy: HpuDevice, draft: str, verification: str) -> None:
    options: dict[str, Any] = {"temperature": 0.8, "top_k": 7, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.1}
    requests = make_requests(4, presence_penalty=0.1, logit_bias=((3, 1.0),), bad_words=((5,),), **options)
    on_cpu, target = tiny_target("llama"), on_card("llama", lazy)
    found = []
    for model, device in ((on_cpu, PlainDevice()), (target, lazy)):
        draft_model = model if draft == "model" else None
        engine_options = EngineOptions(batch_size=3, draft=draft, draft_lengths=(3,), verification=verification)  # type: ignore[arg-type]
        engine = Engine(model, device, engine_options, draft_model, policy=SMALL_BUCKETS)
        found.append(endings(list(engine.generate(requests))))
    assert found[0] == found[1]
