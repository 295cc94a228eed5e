"""One forward of the target over fixed shapes: the only place where the engine runs the model."""

import logging
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

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ForwardLog:
    """Forwards so far: how often each shape ran, and seconds inside them.

    warmed: shapes of warm-ups. On a device that works asynchronously the seconds are those of handing over the work.
    """

    graph_keys: Counter[GraphKey] = field(default_factory=Counter)
    seconds: float = 0.0
    warmed: set[GraphKey] = field(default_factory=set)

    def add(self, key: GraphKey) -> None:
        if self.warmed and key not in self.warmed and key not in self.graph_keys:
            logger.warning("a shape that was not warmed up, and is compiled now: %s", key)
        self.graph_keys[key] += 1

    def new_keys(self) -> dict[GraphKey, int]:
        """Shapes that ran without having been warmed up, and how often; empty where there was no warm-up."""
        return {key: count for key, count in self.graph_keys.items() if self.warmed and key not in self.warmed}


@dataclass(frozen=True, slots=True)
class Forwards:
    """What the device compiles. Apart from the runner, which it would else keep alive, and the old cache with it."""

    target: Target
    cache: RaggedCache

    def prefill(self, input_ids: Tensor, slots: Tensor, last_positions: Tensor) -> Logits:
        self.cache.at_prompts(slots)
        length = input_ids.shape[1]
        positions = torch.arange(length, device=input_ids.device).expand(input_ids.shape)
        masks = self.target.attention_masks(positions, length)
        return self.target.logits(input_ids, self._position_ids(positions), masks, self.cache, last_positions)

    def decode(self, input_ids: Tensor, positions: Tensor, kv_length: int, at: Tensor | None) -> Logits:
        self.cache.at_windows(positions, kv_length)
        masks = self.target.attention_masks(positions, kv_length)
        return self.target.logits(input_ids, self._position_ids(positions), masks, self.cache, at)

    def _position_ids(self, positions: Tensor) -> Tensor:
        # Padding may lie past the context, where learned position tables have no entry.
        return positions.clamp(max=self.target.context_length - 1)


class ModelRunner:
    """Runs prompts and windows through the target with one cache.

    What varies between forwards of a shape goes through tensor arguments, so a device may record and replay them.
    warmed: shapes that it has been through in a warm-up.
    """

    def __init__(self, target: Target, device: Device, cache: RaggedCache, log: ForwardLog) -> None:
        self.target, self.cache, self.log = target, cache, log
        self.warmed: set[GraphKey] = set()
        self._device = device
        forwards = Forwards(target, cache)
        self._prefill, self._decode = device.compile(forwards.prefill), device.compile(forwards.decode)

    def prefill(self, input_ids: Tensor, slots: Tensor, last_positions: Tensor) -> Logits:
        """Logits (R, 1, V) after whole prompts (R, P), right-padded: each at its last position (R,)."""
        key = GraphKey("prefill", input_ids.shape[0], input_ids.shape[1], 0)
        return self._timed(key, lambda: self._prefill(input_ids, slots, last_positions))

    def decode(self, input_ids: Tensor, positions: Tensor, kv_length: int, at: Tensor | None = None) -> Logits:
        """Logits (B, T, V) after each token of the windows (B, T) at positions (B, T); (B, 1, V) after the one `at`."""
        key = GraphKey("decode", input_ids.shape[0], input_ids.shape[1], kv_length)
        return self._timed(key, lambda: self._decode(input_ids, positions, kv_length, at))

    def run_empty(self, key: GraphKey, takes_last: bool) -> None:
        """A forward of this shape over nothing, waited for: prefills in the scratch slot, windows where slots begin.

        takes_last: as with `at`, where there are several positions.
        """
        self.warmed.add(key)
        self.log.warmed.add(key)
        device, shape = self.target.device, (key.num_rows, key.num_positions)
        tokens = torch.zeros(shape, dtype=torch.int64, device=device)
        ends = torch.zeros(key.num_rows, dtype=torch.int64, device=device)
        if key.phase == "prefill":
            self.prefill(tokens, ends + self.cache.scratch_slot, ends)
        else:
            positions = torch.arange(key.num_positions, device=device).expand(shape)
            self.decode(tokens, positions, key.kv_length, ends if takes_last and key.num_positions > 1 else None)
        self._device.synchronize()

    def _timed(self, key: GraphKey, forward: Callable[[], Logits]) -> Logits:
        self.log.add(key)
        start = time.perf_counter()
        logits = forward()
        self._device.step_end()
        self.log.seconds += time.perf_counter() - start
        return logits
