"""Fixtures of tests of attempts at shards."""

import pytest

from jobs.control.store import Store
from jobs.settings import Settings
from tests.workers.attempts import CountingSession
from workers.context import WorkerContext, WorkerOptions


@pytest.fixture
def context(settings: Settings, store: Store) -> WorkerContext:
    options = WorkerOptions(name="w1", device="cpu")
    return WorkerContext(settings, store, options, lambda spec, threads: CountingSession(spec))
