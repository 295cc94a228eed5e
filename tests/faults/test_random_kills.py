"""SIGKILL of workers, nodes, beats, clients and brokers at random times."""

import os
from pathlib import Path

import pytest

from tests.faults.random_kills import Storm

NUM_KILLS, NUM_KILLS_IN_CI = 50, 10


def check_storm(directory: Path, num_kills: int, seed: int) -> None:
    print(f"seed {seed}")
    report = Storm(directory, seed).run(num_kills)
    print(report)
    assert report.kills.total() >= num_kills
    assert (report.rows_lost, report.rows_doubled) == (0, 0)
    assert report.waste >= 1.0


@pytest.mark.ci
def test_a_few_random_kills(on_memory: Path) -> None:
    check_storm(on_memory, NUM_KILLS_IN_CI, seed=1)


@pytest.mark.timeout(900)
def test_fifty_random_kills(on_memory: Path) -> None:
    check_storm(on_memory, NUM_KILLS, seed=int.from_bytes(os.urandom(4)))
