"""The target's keys and values on fixed shapes, every row at its own length.

A buffer per layer has one slot for each row, and slot position = token position. A round scatters each row's window at
the row's own positions; what was rejected is overwritten by the next round, and until then no query sees it, since a
query only sees positions up to its own. So nothing is cropped, padded anew, or grouped by length.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache


class KVShape(NamedTuple):
    """One layer's keys and values at one position."""

    num_heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype


class FixedCache(Cache):  # type: ignore[misc]  # transformers has no types
    """What models of transformers 4.55 to 5.x ask of a cache, for one that masks and positions are given beside.

    Models are handed positions and a 4-D mask, so the lengths here only have to be constant.
    """

    is_compileable = True
    is_initialized = True
    is_croppable = False

    def __init__(self) -> None:
        # Not the base's, whose arguments differ between versions and which builds layers of its own.
        self.layers: list[Any] = []
        self.offloading = False

    def get_seq_length(self, *args: Any, **kwargs: Any) -> int:
        return 0

    def get_query_offset(self, *args: Any, **kwargs: Any) -> int:
        return 0

    def get_mask_sizes(self, query: Tensor | int, layer_idx: int = 0) -> tuple[int, int]:
        return query if isinstance(query, int) else query.shape[0], 0

    def get_max_cache_shape(self, *args: Any, **kwargs: Any) -> int:
        return 0

    @property
    def is_sliding(self) -> list[bool]:
        return [False]

    @property
    def is_linear(self) -> list[bool]:
        return [False]

    @property
    def is_dummy(self) -> list[bool]:
        return [False]


class ProbeCache(FixedCache):
    """Keeps no keys and values, only the shape that each layer gives them: the layers that have a cache at all."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: dict[int, KVShape] = {}

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        self.shapes[layer_idx] = KVShape(keys.shape[1], keys.shape[-1], values.shape[-1], keys.dtype)
        return keys, values


class RaggedCache(FixedCache):
    """Keys (S + 1, H, L, Dk) and values (S + 1, H, L, Dv) of each layer; the last slot is scratch, for padding rows.

    Before a forward, `at_prompts` or `at_windows` says where the layers' new keys and values go.
    """

    def __init__(self, shapes: Mapping[int, KVShape], num_slots: int, length: int, device: torch.device | str) -> None:
        super().__init__()
        self.num_slots = num_slots
        self.length = length
        # Zeros: a masked position weighs 0, and 0 x NaN of uninitialised memory would still be NaN.
        self.keys = {
            layer: torch.zeros(num_slots + 1, s.num_heads, length, s.key_dim, dtype=s.dtype, device=device)
            for layer, s in shapes.items()
        }
        self.values = {
            layer: torch.zeros(num_slots + 1, s.num_heads, length, s.value_dim, dtype=s.dtype, device=device)
            for layer, s in shapes.items()
        }
        self._slots: Tensor | None = None
        self._positions = torch.zeros(num_slots, 1, dtype=torch.int64, device=device)
        self._kv_length = length

    @property
    def scratch_slot(self) -> int:
        return self.num_slots

    def at_prompts(self, slots: Tensor) -> None:
        """The next forward holds whole prompts (R, P) of the slots (R,), which attend to themselves only."""
        self._slots = slots

    def at_windows(self, positions: Tensor, kv_length: int) -> None:
        """The next forward holds a window (S, T) of every slot at positions (S, T), and sees kv_length positions."""
        self._slots, self._positions, self._kv_length = None, positions, kv_length

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Stores one layer's new keys and values (rows, H, T, D); returns those that the layer attends to."""
        if self._slots is not None:
            self._write_prompts(self.keys[layer_idx], keys, self._slots)
            self._write_prompts(self.values[layer_idx], values, self._slots)
            return keys, values
        return self._write_windows(self.keys[layer_idx], keys), self._write_windows(self.values[layer_idx], values)

    def _write_prompts(self, buffer: Tensor, states: Tensor, slots: Tensor) -> None:
        num_positions = states.shape[2]
        buffer[slots, :, :num_positions] = states
        # A NaN left by the slot's last row would reach this one through positions that it has yet to write.
        buffer[:, :, num_positions:].index_fill_(0, slots, 0.0)

    def _write_windows(self, buffer: Tensor, states: Tensor) -> Tensor:
        rows = buffer[: self.num_slots]
        rows.scatter_(2, self._positions[:, None, :, None].expand_as(states), states)
        return rows[:, :, : self._kv_length]
