"""Tiny models on the stand-in for a Gaudi card, and jobs on them."""

from typing import Any

import torch

from tests.engine.conftest import SMALL_BUCKETS, endings, make_requests, reference, tiny_model, tiny_target
from workers.devices.hpu import HpuDevice
from workers.engine.attention import attention_for
from workers.engine.buckets import BucketPolicy
from workers.engine.engine import Engine
from workers.engine.options import EngineOptions
from workers.engine.target import Target

REQUESTS = make_requests(6)


def on_card(family: str, device: HpuDevice, attention: str | None = None) -> Target:
    model = tiny_model(family)
    model.set_attn_implementation(attention or attention_for(type(model), model.config, device.attention))
    with torch.inference_mode():
        model.to(device.torch_device)
    device.prepare(model)
    return Target(model)


def run(
    target: Target, device: HpuDevice, draft: str = "ngram", policy: BucketPolicy = SMALL_BUCKETS, **options: Any
) -> tuple[Engine, Any]:
    all_options = EngineOptions(batch_size=3, draft=draft, draft_lengths=(3,), **options)  # type: ignore[arg-type]
    engine = Engine(target, device, all_options, target if draft == "model" else None, policy=policy)
    return engine, endings(list(engine.generate(REQUESTS)))


def expected(family: str = "llama") -> Any:
    return reference(tiny_target(family), REQUESTS)
