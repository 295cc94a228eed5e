"""Capture and replay of what a card computes: the operations alone, on the same memory, without the Python around."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from tests.habana_fake.tensor import HpuTensor


class Operation(NamedTuple):
    """Arguments and output are CPU tensors: the memory that it reads and writes at every replay."""

    func: Any
    args: Any
    kwargs: Any
    output: Any


class RecordedGraph:
    """inputs: tensors whose memory a replay is given anew. What else is read stays what, and where, it was."""

    def __init__(self) -> None:
        self.inputs: list[torch.Tensor] = []
        self._operations: list[Operation] = []

    @contextmanager
    def capturing(self) -> Iterator[None]:
        if HpuTensor.recorder is not None:
            raise RuntimeError("a graph is being captured already")
        HpuTensor.recorder = lambda *operation: self._operations.append(Operation(*operation))
        try:
            yield
        finally:
            HpuTensor.recorder = None

    def replay(self, inputs: list[torch.Tensor]) -> None:
        for mine, given in zip(self.inputs, inputs, strict=True):
            mine.copy_(given)
        for operation in self._operations:
            _repeat(operation)


def _repeat(operation: Operation) -> None:
    output = operation.func(*operation.args, **operation.kwargs)
    for old, new in zip(_tensors(operation.output), _tensors(output), strict=True):
        if old.data_ptr() != new.data_ptr():  # not a view, nor written in place
            old.copy_(new)


def _tensors(output: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
