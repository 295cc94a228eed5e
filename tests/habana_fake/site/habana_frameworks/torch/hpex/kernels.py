"""habana_frameworks.torch.hpex.kernels: attention by its definition."""

from typing import Any

import torch
from torch import Tensor


class FusedSDPA:
    @staticmethod
    def apply(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        softmax_mode: str = "None",
        recompute_mode: bool | None = None,
        valid_seq_len: Any = None,
        seq_padding_type: str = "left",
    ) -> Tensor:
        if attn_mask is not None and attn_mask.dtype != q.dtype:
            raise RuntimeError(f"a mask of {attn_mask.dtype} is added to scores of {q.dtype}")
        num_shared = q.shape[1] // k.shape[1]
        keys, values = (states.repeat_interleave(num_shared, dim=1) for states in (k, v))
        scores = q @ keys.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
        return torch.softmax(scores if attn_mask is None else scores + attn_mask, dim=-1) @ values
