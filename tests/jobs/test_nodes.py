"""Worker nodes of one machine: cores are shared out, and the commands say so."""

from pathlib import Path

import pytest

from jobs.local import nodes
from jobs.local.nodes import worker_children
from jobs.settings import Settings


def threads_of(num_workers: int, threads: int | None, data_dir: Path) -> list[str]:
    children = worker_children(num_workers, "cpu", Settings(data_dir=data_dir), "tests.toy:load_session", threads)
    return [child.command[child.command.index("--threads") + 1] for child in children]


@pytest.mark.parametrize(
    ("num_workers", "threads", "each"), [(1, None, "8"), (2, None, "4"), (3, None, "2"), (2, 4, "2"), (9, None, "1")]
)
def test_workers_share_the_cores_and_each_has_one_at_least(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, num_workers: int, threads: int | None, each: str
) -> None:
    monkeypatch.setattr(nodes, "num_cores", lambda: 8)
    assert threads_of(num_workers, threads, tmp_path) == [each] * num_workers
