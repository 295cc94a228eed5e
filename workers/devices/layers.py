"""The layers that a model repeats: what is compiled where whole models take too long."""

from collections.abc import Sequence
from typing import Any

import torch


def decoder_layers(model: Any) -> Sequence[torch.nn.Module]:
    """The modules of the model's list of layers; the model alone where it keeps them in no list."""
    num_layers = model.config.get_text_config().num_hidden_layers
    lists = (module for module in model.modules() if isinstance(module, torch.nn.ModuleList))
    return next((list(layers) for layers in lists if len(layers) == num_layers), [model])
