"""What the faults share: the shim, a ledger of what was generated, and a cluster whose workers can be told to die."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.control.queue import Queue
from jobs.control.store import Store
from jobs.settings import Settings
from schemas.job import JobSpec
from schemas.message import ShardMessage
from tests.faults.oracle import check_job, digest_of
from tests.faults.session import num_generated
from tests.faults.shim import compile_shim
from tests.integration.conftest import ROOT, Cluster, Node, assert_nothing_left, wait_until
from tests.services import Server

SESSION = "tests.faults.session:load_session"
ON_MEMORY = Path("/dev/shm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/faults/" in item.nodeid:
            item.add_marker(pytest.mark.faults)
            item.add_marker(pytest.mark.services)


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def server() -> Iterator[Server]:
    """One that a test may kill."""
    started = Server()
    yield started
    started.stop()


class FaultyCluster(Cluster):
    """Nodes that keep a ledger. Its directory has the ledger, the orders and the logs."""

    def __init__(self, settings: Settings, url: str, directory: Path) -> None:
        super().__init__(settings, Store(settings, url), Queue(settings, url), directory)
        self.ledger, self.orders = directory / "ledger", directory / "orders"
        self.orders.mkdir()
        self.mark = directory / "landed"

    def start_faulty(self, *names: str, environ: dict[str, str] | None = None, reconcile: bool = True) -> list[Node]:
        """Nodes that are ready. reconcile: whether this process is to look after the jobs as well."""
        base = {"FAULT_LEDGER": str(self.ledger), "FAULT_ORDERS": str(self.orders)}
        return self.start(*names, reconcile=reconcile, session=SESSION, environ=base | (environ or {}))

    def finish(self, spec: JobSpec, job_id: str) -> float:
        """Waits for the end, applies the oracle, replays all of it; returns rows generated over rows committed."""
        self.wait_for(job_id)
        table = check_job(spec)
        self.replay(spec, job_id)
        waste = num_generated(self.ledger, spec.output) / table.num_rows
        print(json.dumps({"rows": table.num_rows, "lost": 0, "doubled": 0, "waste": round(waste, 3)}))
        return waste

    def replay(self, spec: JobSpec, job_id: str) -> None:
        """Every message that there was is delivered again, and the job submitted again: no byte changes."""
        # A node that was killed has left its message where Celery finds it again after the visibility timeout.
        before, num_left = digest_of(spec.output), len(self.queue.live_deliveries())
        deliveries = self.store.shard_states(job_id).deliveries
        old = [(shard, number) for shard, newest in deliveries.items() for number in range(newest + 1)]
        self.queue.enqueue_shards([ShardMessage(job_id=job_id, shard_index=s, delivery=n) for s, n in old], "auto")
        assert self.submit(spec) == job_id
        wait_until(lambda: len(self.queue.live_deliveries()) <= num_left, 20, "all are dropped")
        assert digest_of(spec.output) == before

    def jobctl(self, *arguments: str, environ: dict[str, str] | None = None) -> "subprocess.Popen[str]":
        """A client on this broker, with no reconciler but its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "jobs.cli", *arguments],
            cwd=ROOT,
            env={**os.environ, **self.settings.to_environ(), **(environ or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture
def faulty(settings: Settings, redis_url: str, tmp_path: Path) -> Iterator[FaultyCluster]:
    made = FaultyCluster(settings, redis_url, tmp_path)
    yield made
    made.end()
    assert_nothing_left(made.nodes)


@pytest.fixture
def on_memory(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system in memory where there is one: each of a thousand small jobs syncs its files."""
    if not os.access(ON_MEMORY, os.W_OK):
        yield tmp_path
        return
    directory = ON_MEMORY / f"faults-{os.getpid()}-{tmp_path.name}"
    directory.mkdir()
    yield directory
    subprocess.run(["rm", "-rf", directory], check=True)
