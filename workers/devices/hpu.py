"""An Intel Gaudi card in lazy mode: forwards are recorded as HPU graphs, one for each shape.

The only file that looks up names of habana_frameworks, since they drift between releases.
"""

import importlib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch

from schemas.errors import InvalidJob
from schemas.job import Dtype
from workers.devices.base import named_dtype

_PACKAGE = "habana_frameworks"


@dataclass(frozen=True, slots=True)
class HabanaNames:
    """What is used of habana_frameworks.torch.

    mark_step starts the work collected so far. wrap_in_hpu_graph records a module's forward, once for each set of
    input shapes and Python scalars. mem_get_info gives (free, total) bytes.
    """

    mark_step: Callable[[], None]
    synchronize: Callable[[], None]
    mem_get_info: Callable[[], tuple[int, int]]
    wrap_in_hpu_graph: Callable[..., torch.nn.Module]

    @classmethod
    def look_up(cls) -> Self:
        """Raises InvalidJob that says what is missing: the package, or a name that this release does not have."""
        core, hpu = _import_module("core"), _import_module("hpu")
        if not hasattr(hpu, "wrap_in_hpu_graph"):  # eager mode has none
            raise InvalidJob("device hpu: HPU graphs need lazy mode; start the worker with PT_HPU_LAZY_MODE=1")
        return cls(
            mark_step=_named(core, "mark_step"),
            synchronize=_named(hpu, "synchronize"),
            mem_get_info=_named(hpu, "mem_get_info"),
            wrap_in_hpu_graph=_named(hpu, "wrap_in_hpu_graph"),
        )


def is_present() -> bool:
    """Whether habana_frameworks is installed and finds a card."""
    return importlib.util.find_spec(_PACKAGE) is not None and bool(_import_module("hpu").is_available())


class HpuDevice:
    """A Device of the Gaudi card that this process is pinned to, bfloat16 by default.

    Raises InvalidJob where habana_frameworks is not installed, finds no card, or is not in lazy mode.
    """

    name = "hpu"
    static_shapes = True

    def __init__(self) -> None:
        self._names = HabanaNames.look_up()
        if not is_present():
            raise InvalidJob("device hpu: no Gaudi card is free for this process; use another --device")
        self.torch_device = torch.device("hpu")

    def dtype(self, asked: Dtype) -> torch.dtype:
        return named_dtype(asked, auto=torch.bfloat16)

    def compile(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        # Without a tensor cache: each graph would keep its own copy of what it reads, the key-value cache included.
        return self._names.wrap_in_hpu_graph(_Forward(forward), disable_tensor_cache=True)

    def step_end(self) -> None:
        self._names.mark_step()

    def synchronize(self) -> None:
        self._names.mark_step()
        self._names.synchronize()

    def memory_bytes(self) -> tuple[int, int]:
        return self._names.mem_get_info()


class _Forward(torch.nn.Module):
    """A function as a module, which is what HPU graphs wrap."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def _import_module(name: str) -> Any:
    # The mode is fixed by the first import, and its default differs between releases and transformers.
    os.environ.setdefault("PT_HPU_LAZY_MODE", "1")
    try:
        return importlib.import_module(f"{_PACKAGE}.torch.{name}")
    except ImportError as error:
        raise InvalidJob(f"device hpu: {_PACKAGE} cannot be imported ({error}); install Gaudi's software") from error


def _named(module: Any, name: str) -> Any:
    if not hasattr(module, name):
        raise InvalidJob(f"device hpu: this release of {_PACKAGE} has no {name}; install one that has it")
    return getattr(module, name)
