"""The target's first layers and its head as a draft: they share its weights, and the lower layers of its cache.

Self-speculative decoding by early exit (Elhoushi et al. 2024, LayerSkip, arXiv 2404.16710). What the exit writes into
the cache at drafted positions the target writes anew as it verifies them, so there is nothing to follow or catch up.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from schemas.errors import InvalidJob
from workers.devices.base import Device
from workers.engine.buckets import Buckets
from workers.engine.constraints import Logits
from workers.engine.runner import ForwardLog, ModelRunner
from workers.engine.target import Target
from workers.engine.warm_up import PlannedShapes


class EarlyExitDecoder:
    """What DraftDecoder is for a model of its own. log: its forwards."""

    def __init__(self, target: Target, exit_layer: int, device: Device, buckets: Buckets) -> None:
        """buckets: the target's. Raises InvalidJob where the target has no more than exit_layer layers."""
        self.model, self.log = early_exit(target, exit_layer), ForwardLog()
        self._device, self._buckets = device, buckets
        self._runner: ModelRunner | None = None
        self._tokens: list[list[int]] = []

    def begin(self, runner: ModelRunner) -> None:
        """Takes on the target's cache; no slot has a row."""
        if self._runner is None or self._runner.cache is not runner.cache:
            self._runner = ModelRunner(self.model, self._device, runner.cache, self.log)
        self._tokens = [[] for _ in range(self._buckets.batch_size)]

    def planned_shapes(self) -> list[PlannedShapes]:
        assert self._runner is not None
        keys = [key._replace(num_positions=1) for key in self._buckets.warm_up_keys() if key.phase == "decode"]
        return [PlannedShapes(self._runner, list(dict.fromkeys(keys)))]

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        self._tokens[slot] = list(tokens)

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        self._tokens[slot] += tokens

    def finish(self, slot: int) -> None:
        self._tokens[slot] = []

    def can_draft(self, slot: int, k: int) -> bool:
        return bool(self._tokens[slot])

    def last_logits(self, k: int) -> tuple[Logits, Tensor]:
        """Logits (B, 1, V) after each row's last token, and its position (B, 1)."""
        heads = [[len(row) - 1, row[-1]] if row else [0, 0] for row in self._tokens]
        moved = torch.tensor(heads).to(self.model.device)
        return self.step(moved[:, 1:], moved[:, :1]), moved[:, :1]

    def step(self, tokens: Tensor, positions: Tensor) -> Logits:
        """Logits (B, 1, V) after tokens (B, 1) at positions (B, 1)."""
        assert self._runner is not None
        longest = max(map(len, self._tokens)) + self._buckets.window
        kv_length = min(self._buckets.kv_length(longest), self._runner.cache.length)
        return self._runner.decode(tokens, positions, kv_length)


def early_exit(target: Target, num_layers: int) -> Target:
    """A Target of the first num_layers layers, sharing all weights. Raises InvalidJob where it cannot be made."""
    path, layers = _layers_of(target.model, target.config.num_hidden_layers)
    if num_layers >= len(layers):
        raise InvalidJob(f"--exit-layer {num_layers}: the model has {len(layers)} layers; choose a lower one")
    model = _with_module(target.model, path, layers[:num_layers])
    return Target(model, target.tokenizer, target.context_length)


def _layers_of(model: torch.nn.Module, num_layers: int) -> tuple[list[str], torch.nn.ModuleList]:
    """(path, list) of the model's decoder layers."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == num_layers:
            return name.split("."), module
    raise InvalidJob("--draft early-exit: the model keeps its layers in no list; choose another draft")


def _with_module(module: Any, path: Sequence[str], replacement: torch.nn.Module) -> Any:
    """A copy of a module, without its weights, that has another module at the path."""
    shallow = copy.copy(module)
    shallow._modules = dict(module._modules)
    name, rest = path[0], path[1:]
    shallow._modules[name] = _with_module(module._modules[name], rest, replacement) if rest else replacement
    return shallow
