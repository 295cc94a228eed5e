"""Loading a model: a hub id, a folder or a .gguf file on a device, or one line that says why not.

The one edge where what transformers raises is translated.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
)

from jobs.plan.models import is_local_model, resolve_model
from jobs.texts import one_line
from schemas.errors import InvalidJob, ShardRetryable, SpecbatchError
from schemas.job import Dtype
from workers.devices.base import Device
from workers.engine.attention import attention_for
from workers.engine.families import GENERATE_RUNS_IT, refuse_unreadable, refuse_unsupported, usable_context
from workers.engine.packed import pack_linear_layers
from workers.engine.plain.loading import plain_model
from workers.engine.plain.model import PlainModel
from workers.engine.self_check import check_ragged_decoding
from workers.engine.target import Target
from workers.engine.trust import ASK_FOR_TRUST, NO_TRUST, Trust, own_class, refuse_code_of_others

_VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])
DTYPE_NAME = "dtype" if _VERSION >= (4, 56) else "torch_dtype"

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where transformers finds a model: the name it takes, and the keywords that go with it."""

    name: str
    keywords: dict[str, Any]

    @classmethod
    def of(cls, model: str, revision: str | None, trust: Trust) -> Self:
        """Raises InvalidJob where a local model's files are no longer those of its revision."""
        if not is_local_model(model):
            return cls(model, {"revision": revision, "trust_remote_code": trust.remote_code})
        resolve_model(model, revision, trust.allow_pickle)
        path, keywords = Path(model).expanduser(), {"trust_remote_code": trust.remote_code}
        if path.is_file():
            return cls(str(path.parent), keywords | {"gguf_file": path.name})
        return cls(str(path), keywords)


class Loaded(NamedTuple):
    """What transformers made of a model's files."""

    weights: Any
    tokenizer: Any
    config: Any
    model_class: Any


def text_class(config: Any) -> Any:
    """What transformers would generate text with from such a config, or None."""
    causal, seq2seq = MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
    return (seq2seq if config.is_encoder_decoder else causal).get(type(config), None)


def load_target(model: str, revision: str | None, dtype: Dtype, device: Device, trust: Trust = NO_TRUST) -> Target:
    """The model and its tokenizer on the device, tried on a few tokens.

    revision: the pinned one; None takes what is there. Raises InvalidJob where the model cannot be loaded or is of a
    family that the engine cannot run, ShardRetryable where the device has no memory left for it.
    """
    loaded = _load(model, revision, dtype, device, refuse_unsupported, trust)
    return translated(f"model {model}", lambda: _on_device(loaded, device))


def load_plain(model: str, revision: str | None, dtype: Dtype, device: Device, trust: Trust = NO_TRUST) -> PlainModel:
    """The same for engine generate, which runs more families."""
    loaded = _load(model, revision, dtype, device, refuse_unreadable, trust)
    return translated(
        f"model {model}",
        lambda: plain_model(loaded.weights.to(device.torch_device), loaded.tokenizer, loaded.model_class),
    )


def _load(
    model: str, revision: str | None, asked: Dtype, device: Device, refuse: Callable[[Any, Any], None], trust: Trust
) -> Loaded:
    transformers.utils.logging.disable_progress_bar()
    source, name = ModelSource.of(model, revision, trust), f"model {model}"
    if trust.remote_code:
        translated(name, lambda: refuse_code_of_others(source.name, source.keywords))
    config = translated(name, lambda: AutoConfig.from_pretrained(source.name, **source.keywords))
    model_class = text_class(config)
    if model_class is None and trust.remote_code:
        model_class = translated(name, lambda: own_class(config, source.name, source.keywords))
    refuse(config, model_class)
    dtype = device.dtype(asked)
    attention = attention_for(model_class, config.get_text_config(), device.attention)
    weights = translated(name, lambda: _load_weights(source, model_class, attention, config, dtype, trust))
    return Loaded(weights, load_tokenizer(model, revision, trust), config, model_class)


def load_tokenizer(model: str, revision: str | None, trust: Trust = NO_TRUST) -> Any:
    """Raises InvalidJob where it cannot be loaded."""
    source = ModelSource.of(model, revision, trust)
    return translated(
        f"the tokenizer of model {model}", lambda: AutoTokenizer.from_pretrained(source.name, **source.keywords)
    )


def _load_weights(
    source: ModelSource, model_class: Any, attention: str, config: Any, dtype: torch.dtype, trust: Trust
) -> Any:
    keywords = source.keywords | {DTYPE_NAME: dtype}
    if "gguf_file" in keywords:
        keywords |= _gguf_keywords()
    else:
        keywords |= trust.weights_keywords()
    keywords["attn_implementation"] = attention
    auto_class = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    model, info = auto_class.from_pretrained(source.name, output_loading_info=True, **keywords)
    if missing := sorted(info["missing_keys"]):  # transformers draws them at random, and only warns
        raise ValueError(f"its weights lack {missing[0]} and {len(missing) - 1} more; download the model again")
    return model


@contextmanager
def naming_draft(model: str | None) -> Iterator[None]:
    """What is wrong with a model that is to draft names its own option. Raises InvalidJob."""
    try:
        yield
    except InvalidJob as error:
        reason = str(error).removesuffix(f"; {GENERATE_RUNS_IT}")
        raise InvalidJob(f"--draft-model {model} cannot draft; choose another one: {reason}") from error


def _gguf_keywords() -> dict[str, Any]:
    """GGUF weights are unpacked at load: kept in their blocks, a step takes many times as long."""
    if hasattr(transformers, "GgufConfig"):  # transformers 4 always unpacks
        return {"quantization_config": transformers.GgufConfig(dequantize=True)}
    return {}


def _on_device(loaded: Loaded, device: Device) -> Target:
    weights = loaded.weights.to(device.torch_device)
    pack_linear_layers(weights)
    device.prepare(weights)
    context = usable_context(loaded.config)
    if context is not None:
        logger.warning(
            "context held to %d tokens: past those, the model's rotary positions would make rows depend on each "
            "other; --engine generate goes on, row by row",
            context,
        )
    target = Target(weights, loaded.tokenizer, context)
    check_ragged_decoding(target)
    return target


def translated(what: str, load: Callable[[], T]) -> T:
    """What load returns. Raises InvalidJob or ShardRetryable, in one line, for whatever transformers raises."""
    try:
        return load()
    except SpecbatchError:
        raise
    except torch.OutOfMemoryError as error:
        raise ShardRetryable(f"{what}: no memory left on the device to load it; use a smaller one") from error
    except Exception as error:  # transformers raises OSError, ValueError, ImportError, KeyError and more
        if "`trust_remote_code=True`" in str(error):
            raise InvalidJob(f"{what} needs its own Python code: {ASK_FOR_TRUST}") from error
        raise InvalidJob(f"{what} cannot be loaded: {one_line(error)}") from error
