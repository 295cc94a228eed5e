"""Tiny random models, prompts with repetitions, and the device that the engine's tests run on."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
import transformers

from schemas.generation import Completion, Request
from schemas.job import Dtype
from workers.engine.batch import Batch
from workers.engine.buckets import BucketPolicy
from workers.engine.drafts.base import HostDraft, HostSource
from workers.engine.engine import Engine
from workers.engine.options import EngineOptions
from workers.engine.prefill import longest_first, prefill
from workers.engine.reference import reference_decode
from workers.engine.target import Target

VOCAB_SIZE = 48
CONTEXT_LENGTH = 96
SMALL_BUCKETS = BucketPolicy(prefill_step=8, prefill_rows=(1, 2), kv_step=32)
FAMILIES = ("llama", "qwen2", "gpt_neox", "opt", "gemma", "gpt2")

_COMMON = {"vocab_size": VOCAB_SIZE, "bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
_SMALL = {**_COMMON, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_ROPE = {**_SMALL, "intermediate_size": 48, "max_position_embeddings": CONTEXT_LENGTH}
_GROUPED = {**_ROPE, "num_key_value_heads": 2}
_WIDE_HEADS = {**_GROUPED, "head_dim": 16}
_SLIDING = {**_WIDE_HEADS, "sliding_window": 8, "query_pre_attn_scalar": 16}
_CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _GROUPED,
    "qwen2": _GROUPED,
    "gpt_neox": _ROPE,
    "opt": {**_SMALL, "ffn_dim": 48, "max_position_embeddings": CONTEXT_LENGTH, "word_embed_proj_dim": 32},
    "gemma": _WIDE_HEADS,
    "gpt2": {**_COMMON, "n_embd": 32, "n_inner": 48, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT_LENGTH},
    "granite": {**_GROUPED, "logits_scaling": 3.0},
    "gemma2": {**_SLIDING, "final_logit_softcapping": 5.0},
    "gemma3_text": _SLIDING,
    "mistral": {**_GROUPED, "sliding_window": 8},
    "qwen3": _WIDE_HEADS,
    "falcon": {**_SMALL, "alibi": False, "max_position_embeddings": CONTEXT_LENGTH},
}


class PlainDevice:
    """The CPU with nothing to compile; counts step_end."""

    name = "cpu"
    torch_device = torch.device("cpu")
    attention = None

    def __init__(self, static_shapes: bool = False) -> None:
        self.static_shapes = static_shapes
        self.num_steps = 0

    def dtype(self, asked: Dtype) -> torch.dtype:
        return torch.float32

    def prepare(self, model: Any) -> None:
        return

    def compile(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        return forward

    def step_end(self) -> None:
        self.num_steps += 1

    def synchronize(self) -> None:
        return

    def memory_bytes(self) -> tuple[int, int]:
        return 0, 0


def tiny_model(family: str, attention: str = "sdpa", **changes: Any) -> Any:
    """A random model whose weights are large enough to make every argmax decisive."""
    config = transformers.AutoConfig.for_model(family, **(_CONFIGS[family] | changes))
    torch.manual_seed(0)
    attention = "eager" if family == "gemma2" else attention  # its capped attention has no other form
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.3)
    return model.eval()


@cache
def tiny_target(family: str, attention: str = "sdpa") -> Target:
    return Target(tiny_model(family, attention))


@cache
def with_eos(family: str, *eos_token_ids: int) -> Target:
    """The target whose generation config names these EOS ids."""
    model = tiny_model(family)
    model.generation_config.eos_token_id = list(eos_token_ids)
    return Target(model)


def make_requests(num_rows: int, max_new_tokens: int = 16, seed: int = 0, **sampling: Any) -> list[Request]:
    """Ragged prompts of 1 to 40 tokens, most with a phrase that repeats."""
    rng = random.Random(seed)
    requests = []
    for index in range(num_rows):
        phrase = [rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(1, 6))]
        prompt = (phrase * 8)[: rng.randint(1, 40)] + [rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(0, 3))]
        requests.append(Request(index, tuple(prompt), max_new_tokens, seed=1000 + index, **sampling))
    return requests


@dataclass(frozen=True)
class Ending:
    token_ids: tuple[int, ...]
    finish_reason: str


def reference(target: Target, requests: Sequence[Request]) -> dict[int, Ending]:
    """What the slow decoder makes of each request, by row_index."""
    return {
        request.row_index: Ending(
            *reference_decode(target.model, request, target.eos_token_ids, target.context_length, target.decode)
        )
        for request in requests
    }


def endings(completions: Sequence[Completion]) -> dict[int, Ending]:
    assert len({completion.row_index for completion in completions}) == len(completions)
    return {c.row_index: Ending(c.token_ids, c.finish_reason) for c in completions}


def make_engine(
    target: Target,
    batch_size: int = 3,
    draft: str = "ngram",
    k: int = 3,
    draft_source: HostSource | None = None,
    policy: Any = SMALL_BUCKETS,
    draft_model: Target | None = None,
    **options: Any,
) -> Engine:
    """An engine that drafts k tokens in every round, from draft_source where one is given."""
    all_options = {"batch_size": batch_size, "draft": draft, "draft_lengths": (k,), **options}
    source = HostDraft("scripted", draft_source, target.device) if draft_source else None
    return Engine(target, PlainDevice(), EngineOptions(**all_options), draft_model, source, policy)


def make_batch(target: Target, requests: Sequence[Request], **options: Any) -> Batch:
    """The batch of an engine after its first prefills: every request in a slot."""
    batch = make_engine(target, **options)._batch_for(requests)
    waiting = longest_first(requests)
    while waiting:
        assert prefill(batch, waiting) == []
    return batch


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)
