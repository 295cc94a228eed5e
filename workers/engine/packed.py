"""Linear layers on a CPU with weights laid out once for its matrix kernels, instead of anew in every step.

oneDNN's blocked layout, through the two operators that torch's own compiler emits when it freezes weights. A layer
over the few positions of a decoding step takes half to a third of the time that way.
"""

from typing import Any

import torch
from torch import Tensor
from transformers.pytorch_utils import Conv1D

# The layout suits one range of positions in a step best, and is right for all.
_POSITIONS_HINT = 32


class PackedLinear(torch.nn.Module):
    """What `torch.nn.Linear` computes, from a packed copy of its weight; the plain weight is not kept."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """weight: (out, in). bias: (out,)."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        # Not a buffer: the packed layout is opaque, so it can be neither moved nor saved.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _POSITIONS_HINT)
        self.bias = bias

    @property
    def weight(self) -> Tensor:
        """The weight (out, in), unpacked anew: for models that ask a layer for it beside calling the layer."""
        dense: Tensor = self._packed.to_dense()
        return dense

    def forward(self, states: Tensor) -> Tensor:
        """(…, in) to (…, out)."""
        output: Tensor = torch.ops.mkldnn._linear_pointwise(states, self._packed, self.bias, "none", [], "")
        return output


def pack_linear_layers(model: torch.nn.Module) -> int:
    """Replaces the model's linear layers in place where this machine has packed kernels; returns how many.

    Each weight is freed as its packed copy is made, so memory stays what it was, but for one case: a head tied to the
    embedding gets a copy of its own (vocabulary x width), since the embedding still looks tokens up in the weight.
    """
    num_packed = 0
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if _is_packable(layer):
                setattr(parent, name, _packed(layer))
                num_packed += 1
    return num_packed


def _is_packable(layer: Any) -> bool:
    # Subclasses may compute something else.
    if type(layer) not in (torch.nn.Linear, Conv1D):
        return False
    return layer.weight.device.type == "cpu" and _has_kernel(layer.weight.dtype)


def _has_kernel(dtype: torch.dtype) -> bool:
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):  # torch was built without oneDNN
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))


def _packed(layer: Any) -> PackedLinear:
    if type(layer) is Conv1D:  # GPT-2's, which keeps its weight transposed
        return PackedLinear(layer.weight.t().contiguous(), layer.bias)
    return PackedLinear(layer.weight, layer.bias)
