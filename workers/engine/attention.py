"""Grouped attention that repeats no keys and values, for models that take their attention by name.

Query heads that share a key head (Ainslie et al. 2023, arXiv 2305.13245) are laid one after another along the query
length: (B, G, R*T, D) against (B, G, S, D), where repeating would copy the cache R times in every layer and step.
"""

from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

GROUPED = "specbatch_grouped"


def grouped_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of query (B, G*R, T, D) over key and value (B, G, S, D): (B, T, G*R, D).

    attention_mask: (B, 1, T, S), True where a query sees. Without one, transformers' own sdpa decides what is causal.
    """
    if attention_mask is None or attention_mask.shape[1] != 1:
        sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
        output: tuple[Tensor, None] = sdpa(
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs
        )
        return output
    num_rows, num_heads, num_positions, head_dim = query.shape
    num_groups, kv_length = key.shape[1:3]
    num_shared = num_heads // num_groups
    packed = query.reshape(num_rows, num_groups, num_shared * num_positions, head_dim)
    mask = attention_mask.expand(num_rows, num_shared, num_positions, kv_length)
    mask = mask.reshape(num_rows, 1, num_shared * num_positions, kv_length)
    mixed = torch.nn.functional.scaled_dot_product_attention(packed, key, value, attn_mask=mask, scale=scaling)
    return mixed.reshape(num_rows, num_heads, num_positions, -1).transpose(1, 2).contiguous(), None


def attention_for(model_class: Any, config: Any) -> str:
    """The fastest attention that computes what this model means: grouped, sdpa or eager."""
    if getattr(config, "attn_logit_softcapping", None) is not None:
        return "eager"  # the others leave the cap out without a word
    if not getattr(model_class, "_supports_sdpa", False):
        return "eager"
    return GROUPED if getattr(model_class, "_supports_attention_backend", False) else "sdpa"


ALL_ATTENTION_FUNCTIONS.register(GROUPED, grouped_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(GROUPED, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
