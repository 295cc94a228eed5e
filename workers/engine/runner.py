"""One forward of the target over fixed shapes: the only place where the engine runs the model."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from workers.devices.base import Device
from workers.engine.buckets import GraphKey
from workers.engine.cache import RaggedCache
from workers.engine.constraints import Logits
from workers.engine.target import Target


@dataclass(slots=True)
class ForwardLog:
    """Forwards so far: how often each shape ran, and seconds inside them.

    On a device that works asynchronously the seconds are those of handing over the work.
    """

    graph_keys: Counter[GraphKey] = field(default_factory=Counter)
    seconds: float = 0.0


class ModelRunner:
    """Runs prompts and windows through the target with one cache.

    What varies between forwards of a shape goes through tensor arguments, so a device may record and replay them.
    """

    def __init__(self, target: Target, device: Device, cache: RaggedCache, log: ForwardLog) -> None:
        self.target, self.cache, self.log = target, cache, log
        self._device = device
        # Not its own methods: a runner that held itself would keep its cache until the garbage collector comes.
        forwards = _Forwards(target, cache)
        self._prefill = device.compile(forwards.prefill)
        self._decode = device.compile(forwards.decode)

    def prefill(self, input_ids: Tensor, slots: Tensor, last_positions: Tensor) -> Logits:
        """Logits (R, 1, V) after whole prompts (R, P), right-padded: each at its last position (R,)."""
        key = GraphKey("prefill", input_ids.shape[0], input_ids.shape[1], 0)
        return self._timed(key, lambda: self._prefill(input_ids, slots, last_positions))

    def decode(self, input_ids: Tensor, positions: Tensor, kv_length: int, at: Tensor | None = None) -> Logits:
        """Logits (B, T, V) after each token of the windows (B, T) at positions (B, T); (B, 1, V) after the one `at`."""
        key = GraphKey("decode", input_ids.shape[0], input_ids.shape[1], kv_length)
        return self._timed(key, lambda: self._decode(input_ids, positions, kv_length, at))

    def _timed(self, key: GraphKey, forward: Callable[[], Logits]) -> Logits:
        self.log.graph_keys[key] += 1
        start = time.perf_counter()
        logits = forward()
        self._device.step_end()
        self.log.seconds += time.perf_counter() - start
        return logits


class _Forwards:
    """What is recorded, with ModelRunner's shapes."""

    def __init__(self, target: Target, cache: RaggedCache) -> None:
        self._target, self._cache = target, cache

    def prefill(self, input_ids: Tensor, slots: Tensor, last_positions: Tensor) -> Logits:
        self._cache.at_prompts(slots)
        length = input_ids.shape[1]
        positions = torch.arange(length, device=input_ids.device).expand(input_ids.shape)
        masks = self._target.attention_masks(positions, length)
        return self._target.logits(input_ids, self._position_ids(positions), masks, self._cache, last_positions)

    def decode(self, input_ids: Tensor, positions: Tensor, kv_length: int, at: Tensor | None) -> Logits:
        self._cache.at_windows(positions, kv_length)
        masks = self._target.attention_masks(positions, kv_length)
        return self._target.logits(input_ids, self._position_ids(positions), masks, self._cache, at)

    def _position_ids(self, positions: Tensor) -> Tensor:
        # Padding may lie past the context, where learned position tables have no entry.
        return positions.clamp(max=self._target.context_length - 1)
