"""torch.compile's backend of a card in eager mode: runs what it is given, and counts."""

from collections.abc import Callable
from typing import Any

import torch

from tests.habana_fake.card import card


def hpu_backend(graph: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
    if card.is_lazy:
        raise RuntimeError("hpu_backend needs eager mode")
    card.count_compilation("layer")
    return graph.forward


torch._dynamo.register_backend(hpu_backend, name="hpu_backend")
