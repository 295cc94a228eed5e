"""What the engine asks of a device. Everything that differs between devices lies behind this."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from schemas.job import Dtype

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def named_dtype(asked: Dtype, auto: torch.dtype) -> torch.dtype:
    return auto if asked == "auto" else _DTYPES[asked]


AttentionKernel = Callable[[Tensor, Tensor, Tensor, Tensor, float | None], Tensor]


class Device(Protocol):
    """One accelerator, or this machine's cores, for the lifetime of a process.

    name: `cpu`, `cuda` or `hpu`, for logs and versions.
    static_shapes: whether a shape not seen before costs a compilation; the bucket planner then prefers few
        large buckets to little padding.
    attention: the device's own attention, or None where torch's is the best. Of query (B, H, T, D), key and value
        (B, G, S, D) with H a multiple of G, a mask (B, 1, T, S) to add to the scores, and a scale: (B, H, T, D).
    """

    name: str
    torch_device: torch.device
    static_shapes: bool

    @property
    def attention(self) -> AttentionKernel | None: ...

    def dtype(self, asked: Dtype) -> torch.dtype:
        """The dtype to load weights in, where `auto` is the device's own choice."""
        ...

    def prepare(self, model: torch.nn.Module) -> None:
        """Compiles parts of a loaded model in place, where the device compiles parts. Called once for each model."""
        ...

    def compile(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The same forward, recorded or compiled per shape where the device has such a thing.

        What it returns stays as it is. Arguments are positional: tensors, and scalars that take few values, since each
        value is a program of its own.
        """
        ...

    def step_end(self) -> None:
        """Called after each forward and each round: where a lazy device starts the work it has collected."""
        ...

    def synchronize(self) -> None:
        """Returns when all work handed to the device is done."""
        ...

    def memory_bytes(self) -> tuple[int, int]:
        """(free, total) bytes of the memory that weights and caches live in."""
        ...
