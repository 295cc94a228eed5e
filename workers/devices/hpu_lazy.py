"""Lazy mode of a Gaudi card: forwards are recorded as HPU graphs, one for each set of shapes and Python scalars."""

import logging
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from workers.devices.habana import HabanaNames, wrap_in_hpu_graph

logger = logging.getLogger(__name__)

# Each keeps its intermediate tensors' memory on the card.
DEFAULT_MAX_GRAPHS = 64


class LazyMode:
    """Makes forwards into HPU graphs, at most max_graphs of them on the card.

    num_ungraphed: calls that ran without a graph, since there was no room for another one.
    """

    def __init__(self, names: HabanaNames, max_graphs: int) -> None:
        """Raises InvalidJob where this process is not in lazy mode."""
        self.max_graphs = max_graphs
        self.num_ungraphed = 0
        self._names = names
        self._wrap = wrap_in_hpu_graph()
        self._forwards: weakref.WeakSet[GraphedForward] = weakref.WeakSet()

    @property
    def num_graphs(self) -> int:
        """Graphs that are on the card now."""
        return sum(len(forward.keys) for forward in self._forwards)

    def prepare(self, model: torch.nn.Module) -> None:
        """Nothing: whole forwards are recorded."""

    def compile(self, forward: Callable[..., Any]) -> "GraphedForward":
        # Without a tensor cache: each graph would keep its own copy of what it reads, the key-value cache included.
        module = _Forward(forward)
        self._wrap(module, disable_tensor_cache=True, max_graphs=self.max_graphs)
        graphed = GraphedForward(module, self, self._names.mark_step)
        weakref.finalize(graphed, module.release)
        self._forwards.add(graphed)
        return graphed

    def admit(self, key: tuple[Any, ...]) -> bool:
        """Whether a graph for a new key may be recorded. Past max_graphs none would be, and nobody would be told."""
        if self.num_graphs < self.max_graphs:
            return True
        self.num_ungraphed += 1
        logger.warning("hpu: %d graphs are recorded, no more fit; %s runs without one", self.num_graphs, key)
        return False


class GraphedForward:
    """A forward behind HPU graphs. keys: (shapes, scalars) that have one.

    Its tensor arguments are copied, so that a view is the same key as a tensor of its own; and so is what it returns,
    since every replay of a graph writes into the same buffers.
    """

    def __init__(self, module: torch.nn.Module, mode: LazyMode, mark_step: Callable[[], None]) -> None:
        self.keys: set[tuple[Any, ...]] = set()
        self._module, self._mode, self._mark_step = module, mode, mark_step

    def __call__(self, *args: Any) -> Any:
        inputs = _copied(args)
        self._mark_step()  # what makes the inputs is not part of the graph
        key = graph_key(args)
        if key not in self.keys and not self._mode.admit(key):
            return self._module(*inputs, bypass_hpu_graphs=True)
        self.keys.add(key)
        return _copied(self._module(*inputs))


class _Forward(torch.nn.Module):
    """A function as a module, which is what HPU graphs wrap. clear_cache: of them."""

    clear_cache: Callable[[], None]

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any) -> Any:
        return self._function(*args)

    def release(self) -> None:
        """Frees the graphs and what the function holds: a wrapped module refers to itself, so it goes much later."""
        self.clear_cache()
        del self._function


def graph_key(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What HPU graphs tell calls apart by: shapes of tensors, values of all else."""
    return tuple(tuple(arg.shape) if isinstance(arg, torch.Tensor) else arg for arg in args)


def _copied(values: Any) -> Any:
    return tree_map_only(torch.Tensor, torch.clone, values)
