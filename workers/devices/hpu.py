"""An Intel Gaudi card, in the mode that the environment names."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from schemas.errors import DeviceUnavailable
from schemas.job import Dtype
from workers.devices.base import named_dtype
from workers.devices.environment import HpuMode, hpu_mode
from workers.devices.habana import HabanaNames, is_present
from workers.devices.hpu_eager import EagerMode
from workers.devices.hpu_lazy import DEFAULT_MAX_GRAPHS, LazyMode

__all__ = ["HpuDevice", "is_present"]


class Mode(Protocol):
    """How forwards become programs of the card."""

    def prepare(self, model: torch.nn.Module) -> None: ...

    def compile(self, forward: Callable[..., Any]) -> Callable[..., Any]: ...


class HpuDevice:
    """A Device of the Gaudi card that this process is pinned to, bfloat16 by default.

    Raises InvalidJob where habana_frameworks is not installed or lacks a name, DeviceUnavailable where the card cannot
    be acquired: another process has it, or it is gone.
    """

    name = "hpu"
    static_shapes = True

    def __init__(self, max_graphs: int = DEFAULT_MAX_GRAPHS) -> None:
        """max_graphs: in lazy mode, at most so many shapes have a graph."""
        self._names = HabanaNames.look_up()
        self.mode = _MODES[hpu_mode()](self._names, max_graphs)
        self._acquire()
        self.torch_device = torch.device("hpu", self._names.current_device())

    @property
    def num_compilations(self) -> int:
        """Programs that the card's compiler has made in this process. After a warm-up it should stand still."""
        self.synchronize()  # it compiles beside the program
        return int(dict(self._names.metric_global("graph_compilation").stats())["TotalNumber"])

    def dtype(self, asked: Dtype) -> torch.dtype:
        return named_dtype(asked, auto=torch.bfloat16)

    def prepare(self, model: torch.nn.Module) -> None:
        self.mode.prepare(model)

    def compile(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        return self.mode.compile(forward)

    def attention(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float | None) -> Tensor:
        """FusedSDPA; query heads that share a key head are its own affair."""
        no_dropout, is_causal = 0.0, False
        mixed: Tensor = self._names.fused_sdpa.apply(query, key, value, mask, no_dropout, is_causal, scale)
        return mixed

    def step_end(self) -> None:
        self._names.mark_step()

    def synchronize(self) -> None:
        self._names.mark_step()
        self._names.synchronize()

    def memory_bytes(self) -> tuple[int, int]:
        return self._names.mem_get_info()

    def _acquire(self) -> None:
        # is_available only counts cards: one that another process holds is found out by taking it.
        try:
            self._names.init()
        except RuntimeError as error:
            raise DeviceUnavailable(
                f"device hpu: the Gaudi card cannot be acquired ({error}); "
                "end the process that holds it, or pin this worker to another card"
            ) from error


_MODES: dict[HpuMode, Callable[[HabanaNames, int], Mode]] = {
    "lazy": LazyMode,
    "eager": lambda names, max_graphs: EagerMode(),
}
