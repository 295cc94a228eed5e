"""Every draft source there is, scripted ones among them, for a tiny target whose tokens are characters."""

import copy
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch

from schemas.generation import Completion, Request
from tests.engine.conftest import Ending, make_engine, reference, tiny_model
from tests.engine.permuted import permuted_model, permuted_tokenizer
from tests.engine.scripted import NoisyDraft, OracleDraft, WrongDraft
from tests.engine.tiny_folder import tiny_tokenizer
from workers.engine.engine import Engine
from workers.engine.target import Target

SCRIPTED = {"oracle": OracleDraft, "wrong": WrongDraft, "noisy": NoisyDraft}
SOURCES: dict[str, dict[str, Any]] = {
    "ngram": {"draft": "ngram"},
    "suffix": {"draft": "suffix"},
    "same model": {"draft": "model"},
    "noisy copy": {"draft": "model"},
    "early exit": {"draft": "early-exit", "exit_layer": 1},
    "other tokenizer by text": {"draft": "model", "vocabulary": "text"},
    "other tokenizer by tokens": {"draft": "model", "vocabulary": "intersection"},
    "auto": {"draft": "auto", "exit_layer": 1},
}
ALL = [*SCRIPTED, *SOURCES]
NUM_TOKENS = 97  # of the tokenizer; the model's vocabulary is padded beyond


@cache
def target(family: str = "llama", dtype: torch.dtype = torch.float32, *eos: int) -> Target:
    model = tiny_model(family, vocab_size=100).to(dtype)
    model.generation_config.eos_token_id = list(eos) or None
    return Target(model, tiny_tokenizer())


@cache
def draft_model(source: str, family: str = "llama", dtype: torch.dtype = torch.float32) -> Target | None:
    """The model that a source needs, which is the target's own in other clothes or spoilt a little."""
    own = target(family, dtype)
    if source in ("same model", "auto"):
        return own
    if source == "noisy copy":
        return Target(noisy_copy(own.model), own.tokenizer)
    if source.startswith("other tokenizer"):
        tokenizer, permutation = permuted_tokenizer(own.tokenizer, seed=3)
        return Target(permuted_model(own.model, permutation), tokenizer)
    return None


def noisy_copy(model: Any) -> Any:
    noisy = copy.deepcopy(model)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in noisy.parameters():
            if parameter.dim() > 1:
                parameter.add_(torch.randn_like(parameter) * 0.05)
    return noisy


def engine_with(
    source: str,
    own: Target,
    requests: Sequence[Request],
    expected: Mapping[int, Ending],
    batch_size: int = 3,
    family: str = "llama",
    **options: Any,
) -> Engine:
    if source in SCRIPTED:
        scripted = SCRIPTED[source](batch_size, requests, expected)
        return make_engine(own, batch_size, draft_source=scripted, **options)
    model = draft_model(source, family, own.model.dtype)
    return make_engine(own, batch_size, draft_model=model, **SOURCES[source], **options)


def run(
    source: str, own: Target, requests: Sequence[Request], expected: Mapping[int, Ending] | None = None, **options: Any
) -> list[Completion]:
    """expected: what scripted sources go by, where it is known already."""
    if source in SCRIPTED and expected is None:
        expected = reference(own, requests)
    return list(engine_with(source, own, requests, expected or {}, **options).generate(requests))
