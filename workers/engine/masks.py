"""Which cache positions a query sees, as the 4-D masks that the models take as they are."""

from typing import Any

import torch
from torch import Tensor

from workers.engine.attention import FUSED

Masks = Tensor | dict[str, Tensor]


class MaskBuilder:
    """Builds a model's attention masks from its config.

    Models whose layers are of several types take a mask for each; where every layer has a sliding window, the window
    is in the one mask. Attention `eager` and `fused` add the mask, and a boolean one would silently do nothing of the
    kind; all other kinds take booleans, True where a query sees.
    """

    def __init__(self, config: Any, dtype: torch.dtype) -> None:
        self.window: int | None = getattr(config, "sliding_window", None)
        layer_types = set(getattr(config, "layer_types", None) or ())
        self.layer_types = layer_types if "sliding_attention" in layer_types else set()
        if (layer_types and not self.layer_types) or getattr(config, "use_sliding_window", True) is False:
            self.window = None
        self.additive_dtype = dtype if config._attn_implementation in ("eager", FUSED) else None

    def __call__(self, query_positions: Tensor, kv_length: int) -> Masks:
        """Masks (B, 1, T, kv_length) for queries at positions (B, T): kv position <= query position."""
        kv_positions = torch.arange(kv_length, device=query_positions.device)
        distance = query_positions[:, None, :, None] - kv_positions
        full = distance >= 0
        if self.window is None:
            return self._form(full)
        sliding = self._form(full & (distance < self.window))
        if not self.layer_types:
            return sliding
        return {"full_attention": self._form(full), "sliding_attention": sliding}

    def _form(self, sees: Tensor) -> Tensor:
        if self.additive_dtype is None:
            return sees
        hidden = torch.finfo(self.additive_dtype).min
        return torch.zeros(sees.shape, dtype=self.additive_dtype, device=sees.device).masked_fill_(~sees, hidden)
