"""A small cluster: real worker nodes on a real server, with a reconciler, and nothing of it left afterwards."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobs.control.queue import Queue
from jobs.control.reconcile import reconcile_forever
from jobs.control.state import ShardProgress
from jobs.control.status import JobStatus, read_status
from jobs.control.store import Store
from jobs.settings import Settings
from jobs.submit import submit
from schemas.job import JobSpec

ROOT = Path(__file__).parents[2]
START_SECONDS = 40.0
END_SECONDS = 60.0
NO_VARIABLES: Mapping[str, str] = {}


def wait_until(holds: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


class Node:
    """`python -m workers` on the toy engine. session, environ: those of workers that faults are injected into."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        log_path: Path,
        device: str = "cpu",
        session: str = "tests.toy:load_session",
        environ: Mapping[str, str] = NO_VARIABLES,
    ) -> None:
        self.name, self.log_path = name, log_path
        command = [sys.executable, "-m", "workers", "--device", device, "--name", name]
        command += ["--session", session, "--threads", "1"]
        with log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **settings.to_environ(), **environ},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def children(self) -> list[psutil.Process]:
        """The process that runs shards; none for a moment after it died."""
        found = []
        for one in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                found += [one] if any("spawn_main" in part for part in one.cmdline()) else []
        return found

    def child(self) -> psutil.Process:
        (child,) = self.children()
        return child

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log
        return "ready." in self.log and bool(self.children())

    def signal(self, signum: int) -> None:
        self.process.send_signal(signum)

    def wait(self, seconds: float = 30.0) -> int:
        return self.process.wait(seconds)

    def end(self) -> None:
        """Whatever is left of its session."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            assert self.process.poll() is not None
        self.process.wait(10)


class Cluster:
    def __init__(self, settings: Settings, store: Store, queue: Queue, directory: Path) -> None:
        self.settings, self.store, self.queue, self.directory = settings, store, queue, directory
        self.nodes: list[Node] = []
        self._stop = threading.Event()
        self._reconciler = threading.Thread(target=reconcile_forever, args=(settings, store, queue, self._stop))

    def start(self, *names: str, reconcile: bool = True, **options: Any) -> list[Node]:
        """Nodes that are ready for messages. options: of each Node."""
        if reconcile and not self._reconciler.is_alive():
            self._reconciler.start()
        nodes = [Node(name, self.settings, self.directory / f"{name}.log", **options) for name in names]
        self.nodes += nodes
        for node in nodes:
            wait_until(node.is_ready, START_SECONDS, f"{node.name} ready")
        return nodes

    def submit(self, spec: JobSpec) -> str:
        return submit(spec, self.settings, self.store, self.queue)

    def status(self, job_id: str) -> JobStatus:
        return read_status(job_id, self.store)

    def wait_for(self, job_id: str, state: str = "finished", seconds: float = END_SECONDS) -> JobStatus:
        wait_until(lambda: self.status(job_id).is_terminal, seconds, f"{job_id} ends")
        status = self.status(job_id)
        assert status.state == state, status
        return status

    def running(self, job_id: str) -> dict[int, ShardProgress]:
        return self.store.shard_states(job_id).running

    def wait_mid_shard(self, job_id: str, num_workers: int = 1) -> dict[int, ShardProgress]:
        """Shards that are well under way: some of their rows are done and some are not."""

        def under_way() -> dict[int, ShardProgress]:
            running = self.running(job_id)
            return {shard: p for shard, p in running.items() if 0 < p.num_rows_done < p.num_rows}

        wait_until(lambda: len(under_way()) >= num_workers, 30, f"{num_workers} workers in the middle of a shard")
        return under_way()

    def end(self) -> None:
        self._stop.set()
        if self._reconciler.ident is not None:
            self._reconciler.join()
        for node in self.nodes:
            node.end()


@pytest.fixture
def cluster(settings: Settings, store: Store, queue: Queue, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(settings, store, queue, tmp_path)
    yield made
    made.end()
    assert_nothing_left(made.nodes)


def assert_nothing_left(nodes: list[Node]) -> None:
    sessions = {node.process.pid for node in nodes}
    wait_until(lambda: not processes_of(sessions), 10, f"no process is left of {sessions}")


def processes_of(sessions: set[int]) -> list[int]:
    """Nodes, their children and their children's helpers, whatever they did to their parents."""
    found: list[int] = []
    for pid in psutil.pids():
        try:
            if os.getsid(pid) in sessions and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue  # it ended while we looked
    return found
