"""habana_frameworks.torch.hpu.metrics."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.habana_fake.card import card


class MetricNotFound(Exception):
    pass


class _GraphCompilation:
    def __init__(self, start: int = 0) -> None:
        self._start = start

    def name(self) -> str:
        return "graph_compilation"

    def stats(self) -> list[tuple[str, float]]:
        number = card.num_compilations - self._start
        return [("TotalNumber", number), ("TotalTime", 0), ("AvgTime", 0)]


def metric_global(name: str) -> _GraphCompilation | None:
    return _GraphCompilation() if name == "graph_compilation" else None


@contextmanager
def metric_localcontext(name: str) -> Iterator[_GraphCompilation]:
    if name != "graph_compilation":
        raise MetricNotFound(f"Metric with given name ({name}) doesn't exist.")
    yield _GraphCompilation(card.num_compilations)
