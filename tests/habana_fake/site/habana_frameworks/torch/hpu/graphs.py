"""habana_frameworks.torch.hpu.graphs: a forward is captured once for each key, then replayed into the same memory."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tests.habana_fake.card import card
from tests.habana_fake.graph import RecordedGraph
from tests.habana_fake.tensor import HpuTensor


def wrap_in_hpu_graph(
    module: torch.nn.Module,
    asynchronous: bool = False,
    disable_tensor_cache: bool = False,
    dry_run: bool = False,
    max_graphs: int | None = None,
) -> torch.nn.Module:
    graphs: dict[Any, tuple[RecordedGraph, Any]] = {}
    original = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if kwargs.pop("bypass_hpu_graphs", False):
            return original(*args, **kwargs)
        key = input_hash((args, kwargs))
        if key in graphs:
            return _replay(*graphs[key], (args, kwargs))
        if max_graphs is not None and len(graphs) == max_graphs:
            # The card's software goes on without a word; here that is what must not happen.
            raise RuntimeError(f"max_graphs {max_graphs} is exceeded")
        graphs[key] = _capture(original, args, kwargs)
        return graphs[key][1]

    module.forward = forward  # type: ignore[method-assign]
    module.clear_cache = graphs.clear  # type: ignore[assignment]
    return module


def input_hash(value: Any) -> int:
    """Of shapes, the way a tensor views its memory, and everything else by value."""
    if isinstance(value, dict):
        return input_hash(tuple(value.items()))
    if isinstance(value, list | tuple):
        return hash(tuple(input_hash(item) for item in value))
    if isinstance(value, torch.Tensor):
        return hash((value.shape, value.stride(), value.storage_offset()))
    return hash(value)


def _capture(original: Callable[..., Any], args: Any, kwargs: Any) -> tuple[RecordedGraph, Any]:
    graph = RecordedGraph()
    graph.inputs = _tensors((args, kwargs))
    with graph.capturing():
        outputs = original(*args, **kwargs)
    card.count_compilation("graph")
    return graph, outputs


def _replay(graph: RecordedGraph, outputs: Any, inputs: Any) -> Any:
    graph.replay(_tensors(inputs))
    card.num_replays += 1
    return outputs


def _tensors(inputs: Any) -> list[torch.Tensor]:
    return [leaf.inner for leaf in tree_leaves(inputs) if isinstance(leaf, HpuTensor)]
