"""habana_frameworks.torch.core."""

from typing import Any

import torch

import tests.habana_fake.backend
import tests.habana_fake.tensor  # noqa: F401  # the card's kernels and compiler
from habana_frameworks.torch import hpu
from tests.habana_fake.card import card


def mark_step(device_str: str = "", sync: bool = False) -> None:
    if card.is_lazy:
        card.num_mark_steps += 1


def hpu_set_env(model: Any = None) -> None:
    return


def hpu_initialize(
    model: Any = None, mark_only_scales_as_const: bool = False, optimizer: Any = None, args: Any = None
) -> None:
    return


def hpu_reset_env() -> None:
    return


# Importing core registers the device module.
if not hasattr(torch, "hpu"):
    torch._register_device_module("hpu", hpu)
