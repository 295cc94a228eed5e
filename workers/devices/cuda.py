"""An NVIDIA card, as torch.cuda knows it."""

from collections.abc import Callable
from typing import Any

import torch

from schemas.errors import InvalidJob
from schemas.job import Dtype
from workers.devices.base import named_dtype
from workers.devices.compiled import compiled


def is_present() -> bool:
    return torch.cuda.is_available()


class CudaDevice:
    """A Device of the first visible CUDA card, bfloat16 by default. Raises InvalidJob where torch sees none."""

    name = "cuda"
    static_shapes = False
    attention = None

    def __init__(self, is_compiled: bool = False) -> None:
        if not is_present():
            raise InvalidJob("device cuda: torch sees no CUDA card on this machine; use another --device")
        self.torch_device = torch.device("cuda", torch.cuda.current_device())
        self._is_compiled = is_compiled

    def dtype(self, asked: Dtype) -> torch.dtype:
        return named_dtype(asked, auto=torch.bfloat16)

    def prepare(self, model: torch.nn.Module) -> None:
        """Nothing: only whole forwards are compiled."""

    def compile(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        return compiled(forward) if self._is_compiled else forward

    def step_end(self) -> None:
        """Nothing: kernels start as they are launched."""

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def memory_bytes(self) -> tuple[int, int]:
        return torch.cuda.mem_get_info(self.torch_device)
