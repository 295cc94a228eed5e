"""Eager mode of a Gaudi card: each decoder layer is compiled by itself, static, with the card's own backend."""

from collections.abc import Callable
from typing import Any

import torch

from workers.devices.compiled import raise_limits
from workers.devices.layers import decoder_layers

_BACKEND = "hpu_backend"


class EagerMode:
    """Compiles a model's layers in place."""

    def prepare(self, model: torch.nn.Module) -> None:
        raise_limits()
        for layer in decoder_layers(model):
            layer.compile(backend=_BACKEND, dynamic=False, fullgraph=True)

    def compile(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        # The layers are what is compiled. Around them little is left, which differs between targets and drafts.
        return forward
