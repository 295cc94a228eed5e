"""Tiny random models of families that only engine generate runs, and what their own `generate` makes of one row."""

from collections.abc import Sequence
from typing import Any

import torch
import transformers

from schemas.generation import Request
from tests.engine.conftest import CONTEXT_LENGTH, VOCAB_SIZE, Ending, PlainDevice
from workers.engine.attention import attention_for
from workers.engine.models import text_class
from workers.engine.plain.engine import GenerateEngine
from workers.engine.plain.loading import plain_model
from workers.engine.plain.model import PlainModel

_COMMON = {"vocab_size": VOCAB_SIZE, "bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
_HIDDEN = {**_COMMON, "hidden_size": 32, "num_hidden_layers": 2}
_ATTENTION = {**_HIDDEN, "intermediate_size": 48, "num_attention_heads": 4, "max_position_embeddings": CONTEXT_LENGTH}
_GROUPED = {**_ATTENTION, "num_key_value_heads": 2}
_MAMBA = {**_HIDDEN, "state_size": 8}
_T5 = {**_COMMON, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
_BART = {
    **_COMMON,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": CONTEXT_LENGTH,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
_JAMBA = {
    **_GROUPED,
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "num_experts": 4,
    "mamba_d_state": 8,
    "mamba_dt_rank": 4,
    "use_mamba_kernels": False,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "bloom": {**_COMMON, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "mpt": {**_COMMON, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": CONTEXT_LENGTH},
    "falcon": {**_HIDDEN, "num_attention_heads": 4, "alibi": True, "max_position_embeddings": CONTEXT_LENGTH},
    "gpt_neo": {
        **_COMMON,
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 4,
        "max_position_embeddings": CONTEXT_LENGTH,
    },
    "mamba": _MAMBA,
    "falcon_mamba": _MAMBA,
    "mamba2": {**_MAMBA, "num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 8},
    "rwkv": _HIDDEN,
    "recurrent_gemma": {
        **_HIDDEN,
        "num_hidden_layers": 3,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "lru_width": 32,
        "attention_window_size": 8,
    },
    "jamba": _JAMBA,
    "lfm2": {**_GROUPED, "layer_types": ["conv", "full_attention"]},
    "minimax": {**_GROUPED, "layer_types": ["linear_attention", "full_attention"], "head_dim": 8, "block_size": 8},
    "llama4_text": {**_GROUPED, "head_dim": 8, "intermediate_size_mlp": 32, "attention_chunk_size": 8},
    "t5": _T5,
    "bart": _BART,
    "pegasus": _BART,
    "nllb-moe": {**_BART, "num_experts": 4, "expert_capacity": 4, "moe_eval_capacity_token_fraction": 0.5},
    "llama": _GROUPED,
    "phi3": _GROUPED,
}


def plain_tiny(family: str, **changes: Any) -> Any:
    """A random model, its attention as a loaded one's, with weights that make every argmax decisive."""
    config = transformers.AutoConfig.for_model(family, **(CONFIGS[family] | changes))
    model_class = text_class(config)
    torch.manual_seed(0)
    model = model_class._from_config(config, attn_implementation=attention_for(model_class, config)).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "A_log" not in name:
                parameter.normal_(0.0, 0.3)
    return model.eval()


def as_plain(model: Any, tokenizer: Any = None) -> PlainModel:
    return plain_model(model, tokenizer, type(model))


def plain_engine(model: Any, batch_size: int = 3, tokenizer: Any = None, **options: Any) -> GenerateEngine:
    return GenerateEngine(as_plain(model, tokenizer), PlainDevice(), batch_size, **options)


def alone(family: str, requests: Sequence[Request], **changes: Any) -> dict[int, Ending]:
    """What the family's own `generate` makes of each row in a batch of one and a model that saw no other: greedy."""
    return {request.row_index: _generated(plain_tiny(family, **changes), request) for request in requests}


def _generated(model: Any, request: Request) -> Ending:
    prompt = torch.tensor([request.prompt_token_ids])
    settings = {"do_sample": False, "max_new_tokens": request.max_new_tokens}
    output = model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), **settings)[0].tolist()
    num_before = 1 if model.config.is_encoder_decoder else prompt.shape[1]
    return Ending(tuple(output[num_before:]), "length")
