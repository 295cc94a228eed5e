"""The names of habana_frameworks.torch: looked up here and nowhere else, since they drift between releases."""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch

from schemas.errors import InvalidJob

_PACKAGE = "habana_frameworks"
_TESTED = "1.21 to 1.24"  # releases of Gaudi's software whose sources and documentation these names are from


@dataclass(frozen=True, slots=True)
class HabanaNames:
    """What is used in both modes.

    mark_step: starts the work that lazy mode has collected; does nothing in eager mode.
    init: acquires the card, or raises RuntimeError. current_device: its index.
    mem_get_info: (free, total) bytes. metric_global: a counter by name, None where there is none.
    fused_sdpa: the kernel's autograd function, to call by `apply`.
    """

    mark_step: Callable[[], None]
    init: Callable[[], None]
    current_device: Callable[[], int]
    synchronize: Callable[[], None]
    mem_get_info: Callable[[], tuple[int, int]]
    metric_global: Callable[[str], Any]
    fused_sdpa: Any

    @classmethod
    def look_up(cls) -> Self:
        """Raises InvalidJob that says what is missing: the package, or a name that this release does not have."""
        core, hpu, kernels = _import_module("core"), _import_module("hpu"), _import_module("hpex.kernels")
        return cls(
            mark_step=_named(core, "mark_step"),
            init=_named(hpu, "init"),
            current_device=_named(hpu, "current_device"),
            synchronize=_named(hpu, "synchronize"),
            mem_get_info=_named(hpu, "mem_get_info"),
            metric_global=_named(hpu, "metric_global"),
            fused_sdpa=_named(kernels, "FusedSDPA"),
        )


def wrap_in_hpu_graph() -> Callable[..., torch.nn.Module]:
    """What records a module's forward, once for each set of input shapes and Python scalars; in lazy mode alone.

    Raises InvalidJob where this release has none, or was imported in eager mode.
    """
    hpu = _import_module("hpu")
    if hasattr(hpu, "wrap_in_hpu_graph"):
        found: Callable[..., torch.nn.Module] = hpu.wrap_in_hpu_graph
        return found
    raise InvalidJob(
        f"device hpu: {_PACKAGE} has no wrap_in_hpu_graph: it was imported in eager mode, or no longer has "
        "lazy mode; start the worker with PT_HPU_LAZY_MODE=0"
    )


def is_present() -> bool:
    """Whether habana_frameworks is installed and finds a card, which another process may hold."""
    return importlib.util.find_spec(_PACKAGE) is not None and bool(_named(_import_module("hpu"), "is_available")())


def _import_module(name: str) -> Any:
    try:
        return importlib.import_module(f"{_PACKAGE}.torch.{name}")
    except ImportError as error:
        raise InvalidJob(
            f"device hpu: {_PACKAGE}.torch.{name} cannot be imported ({error}); "
            f"install Gaudi's software, release {_TESTED}"
        ) from error


def _named(module: Any, name: str) -> Any:
    if not hasattr(module, name):
        raise InvalidJob(
            f"device hpu: this release of {_PACKAGE} has no {module.__name__}.{name}; "
            f"install one that has it, as {_TESTED} do"
        )
    return getattr(module, name)
