"""Fixtures of the command line's tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of one's own, and a data directory beside it."""
    directory = tmp_path / "work"
    directory.mkdir()
    monkeypatch.chdir(directory)
    for name in [name for name in os.environ if name.startswith("JOBCTL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JOBCTL_DATA_DIR", str(tmp_path / "data"))
    return directory


@pytest.fixture
def broker(work: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The server that jobctl talks to."""
    monkeypatch.setenv("JOBCTL_REDIS_URL", redis_url)
    return redis_url


@pytest.fixture
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """It orders what a power failure leaves, not what other processes see."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
