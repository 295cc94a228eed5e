"""Grouped attention that repeats no keys and values, for models that take their attention by name.

Query heads that share a key head (Ainslie et al. 2023, arXiv 2305.13245) are laid one after another along the query
length: (B, G, R*T, D) against (B, G, S, D), where repeating would copy the cache R times in every layer and step.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from workers.devices.base import AttentionKernel

GROUPED = "specbatch_grouped"
FUSED = "specbatch_fused"


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


def fused_attention(kernel: AttentionKernel) -> Callable[..., tuple[Tensor, None]]:
    """A device's own attention in the form that models call: as grouped_attention, with a mask that is added."""

    def attend(
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor,
        scaling: float | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        return kernel(query, key, value, attention_mask, scaling).transpose(1, 2).contiguous(), None

    return attend


def attention_for(model_class: Any, config: Any, kernel: AttentionKernel | None = None) -> str:
    """The fastest attention that computes what this model means: fused, grouped, sdpa or eager.

    kernel: the device's own, which `fused` is from then on.
    """
    if getattr(config, "attn_logit_softcapping", None) is not None:
        return "eager"  # the others leave the cap out without a word
    if not getattr(model_class, "_supports_sdpa", False):
        return "eager"
    if not getattr(model_class, "_supports_attention_backend", False):
        return "sdpa"
    if kernel is None:
        return GROUPED
    ALL_ATTENTION_FUNCTIONS.register(FUSED, fused_attention(kernel))
    return FUSED


ALL_ATTENTION_FUNCTIONS.register(GROUPED, grouped_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(GROUPED, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
ALL_MASK_ATTENTION_FUNCTIONS.register(FUSED, ALL_MASK_ATTENTION_FUNCTIONS["eager"])
