"""This machine's cores."""

import os
from collections.abc import Callable
from typing import Any

import torch

from schemas.job import Dtype
from workers.devices.base import named_dtype
from workers.devices.compiled import compiled

_NUM_THREADS = torch.get_num_threads()  # before any job asked for others


class CpuDevice:
    """A Device of the cores that torch is given. Float32 by default: most CPUs compute bfloat16 more slowly."""

    name = "cpu"
    torch_device = torch.device("cpu")
    static_shapes = False
    attention = None

    def __init__(self, threads: int | None = None, is_compiled: bool = False) -> None:
        """threads: cores to compute with. More threads than cores are many times slower, so workers share them out."""
        torch.set_num_threads(threads or _NUM_THREADS)
        self._is_compiled = is_compiled

    def dtype(self, asked: Dtype) -> torch.dtype:
        return named_dtype(asked, auto=torch.float32)

    def prepare(self, model: torch.nn.Module) -> None:
        """Nothing: only whole forwards are compiled."""

    def compile(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        # Only where it is asked for: it takes minutes per shape, and its step is no faster than an eager one.
        return compiled(forward) if self._is_compiled else forward

    def step_end(self) -> None:
        """Nothing: a forward is done when it returns."""

    def synchronize(self) -> None:
        """Nothing: a forward is done when it returns."""

    def memory_bytes(self) -> tuple[int, int]:
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page_bytes, os.sysconf("SC_PHYS_PAGES") * page_bytes
