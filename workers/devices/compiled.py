"""torch.compile for whole forwards, where a job asks for it."""

from collections.abc import Callable
from typing import Any

import torch

# Past its limits torch would go on uncompiled. A forward is compiled once for each planned shape.
MAX_COMPILATIONS = 1 << 16


def compiled(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The forward as one graph for each set of shapes: nothing in it may depend on values, or it raises."""
    raise_limits()
    return torch.compile(forward, dynamic=False, fullgraph=True)


def raise_limits() -> None:
    config = torch._dynamo.config
    config.recompile_limit = config.accumulated_recompile_limit = MAX_COMPILATIONS
