"""How large a model is, from its config alone: nothing is loaded."""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoConfig, AutoModelForCausalLM

from schemas.job import JobSpec
from workers.devices.base import Device
from workers.engine.cache import KVShape, ProbeCache
from workers.engine.families import refuse_unsupported, usable_context
from workers.engine.masks import MaskBuilder
from workers.engine.models import DTYPE_NAME, ModelSource, naming_draft, text_class, translated
from workers.engine.options import EngineOptions
from workers.engine.planner.memory import MemoryPlan, ModelSize
from workers.engine.target import cache_name, config_context_length
from workers.engine.trust import NO_TRUST, Trust, own_class, refuse_code_of_others


def model_sizes(spec: JobSpec, dtype: torch.dtype) -> tuple[ModelSize, ...]:
    """The target's, then the draft model's where the job names one. Raises InvalidJob as model_size does."""
    trust = Trust.of(spec)
    target = model_size(spec.model, spec.revision, dtype, trust)
    if spec.draft_model is None:
        return (target,)
    with naming_draft(spec.draft_model):
        return target, model_size(spec.draft_model, spec.draft_revision, dtype, trust)


def model_size(model: str, revision: str | None, dtype: torch.dtype, trust: Trust = NO_TRUST) -> ModelSize:
    """Raises InvalidJob where there is no such model, or the engine cannot run it."""
    return translated(f"model {model}", lambda: _size_of(ModelSource.of(model, revision, trust), dtype, trust))


def check_least_memory(spec: JobSpec, device: Device) -> None:
    """Before a model is loaded. Raises InvalidJob where not even rows of one prompt token would fit."""
    options = EngineOptions.of(spec)
    least = options.kv_length or spec.max_new_tokens + 1
    windows = options.windows[-1]
    sizes = model_sizes(spec, device.dtype(spec.dtype))
    plan = MemoryPlan(sizes, options.batch_size, least + windows, options.batch_size * windows)
    plan.check(device.memory_bytes()[1])


def _size_of(source: ModelSource, dtype: torch.dtype, trust: Trust) -> ModelSize:
    if trust.remote_code:
        refuse_code_of_others(source.name, source.keywords)
    config = AutoConfig.from_pretrained(source.name, **source.keywords)
    model_class = text_class(config)
    if model_class is None and trust.remote_code:
        model_class = own_class(config, source.name, source.keywords)
    refuse_unsupported(config, model_class)
    # Its tensors have shapes and no memory. On the device `meta` some models of transformers 4.55 cannot run.
    with FakeTensorMode(), torch.inference_mode():
        keywords = {DTYPE_NAME: dtype, "attn_implementation": "eager", "trust_remote_code": trust.remote_code}
        model = AutoModelForCausalLM.from_config(config, **keywords).eval()
        shapes = _kv_shapes(model)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    kv_bytes = sum(s.num_heads * (s.key_dim + s.value_dim) * s.dtype.itemsize for s in shapes.values())
    text = config.get_text_config()
    context_length = usable_context(config) or config_context_length(text)
    return ModelSize(num_parameters, num_parameters * dtype.itemsize, kv_bytes, text.vocab_size, context_length)


def _kv_shapes(model: Any) -> dict[int, KVShape]:
    cache, positions = ProbeCache(), torch.arange(4)[None]
    inputs = {"input_ids": torch.zeros_like(positions), "position_ids": positions, "use_cache": True}
    masks = MaskBuilder(model.config.get_text_config(), model.dtype)(positions, 4)
    model(**inputs, attention_mask=masks, **{cache_name(model.base_model): cache})
    return cache.shapes
