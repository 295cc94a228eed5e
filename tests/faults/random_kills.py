"""Random kills over jobs that run: whatever dies, and whenever, each row is there once at the end.

Nodes, beats, a broker and clients of this module's own; every second or so one of them is killed with SIGKILL (a node,
the process in it that runs shards, a beat, the broker) or started only to be killed (a client), and started again.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from jobs.control.queue import Queue
from jobs.control.status import read_status
from jobs.control.store import Store
from jobs.plan.planning import load_plan
from jobs.settings import Settings
from jobs.submit import submit
from schemas.errors import NotFound, QueueUnavailable
from schemas.job import JobSpec
from tests.faults.oracle import check_job
from tests.faults.session import num_generated
from tests.integration.conftest import ROOT, Node, wait_until
from tests.services import Server, ServerKind
from tests.toy import toy_spec

SESSION = "tests.faults.session:load_session"
NUM_NODES, NUM_BEATS, NUM_JOBS_AT_ONCE = 2, 1, 2
NUM_ROWS = 384  # of a job: shards of 32 rows, 0.8 s each
# How often each is killed.
WEIGHTS = {"worker process": 5, "node": 4, "beat": 1, "broker": 1, "client": 2}
JOB_END_SECONDS = 300.0


@dataclass
class Report:
    """rows_…: of all jobs that were made. waste: rows generated over rows committed."""

    kills: Counter[str] = field(default_factory=Counter)
    num_jobs: int = 0
    rows_committed: int = 0
    rows_lost: int = 0
    rows_doubled: int = 0
    waste: float = 0.0

    def __str__(self) -> str:
        kills = ", ".join(f"{number} of a {name}" for name, number in sorted(self.kills.items()))
        return (
            f"{self.kills.total()} kills ({kills}) over {self.num_jobs} jobs: {self.rows_committed} rows committed, "
            f"{self.rows_lost} lost, {self.rows_doubled} doubled, waste {self.waste:.3f}"
        )


class Storm:
    """settings are impatient; a job's rounds are short, so that a kill rarely meets the same few rows again."""

    def __init__(self, directory: Path, seed: int, kind: ServerKind | None = None) -> None:
        self.directory, self.seed, self.random = directory, seed, random.Random(seed)
        self.server = Server(kind)
        self.settings = Settings(
            redis_url=self.server.url,
            data_dir=directory / "data",
            lease_seconds=1.5,
            reconcile_seconds=0.3,
            grace_seconds=4.0,
            retry_seconds=0.1,
            checkpoint_seconds=0.2,
            max_attempts=1000,
        )
        self.store, self.queue = Store(self.settings, self.server.url), Queue(self.settings, self.server.url)
        self.report, self.ledger = Report(), directory / "ledger"
        self.jobs: list[JobSpec] = []
        self.nodes: list[Node] = []
        self.beats: list[subprocess.Popen[bytes]] = []

    def run(self, num_kills: int, pause_seconds: tuple[float, float] = (0.5, 2.5)) -> Report:
        """Kills, then lets the rest end in peace, and applies the oracle to every job."""
        try:
            self._keep_up()
            while self.report.kills.total() < num_kills:
                self._keep_jobs()
                time.sleep(self.random.uniform(*pause_seconds))
                self._kill_one()
                self._keep_up()
            self._check_all()
        finally:
            self._end()
        return self.report

    def _keep_up(self) -> None:
        self.nodes = [node for node in self.nodes if node.process.poll() is None]
        while len(self.nodes) < NUM_NODES:
            name = f"node-{self.report.kills.total()}-{len(self.nodes)}"
            log, ledger = self.directory / f"{name}.log", {"FAULT_LEDGER": str(self.ledger)}
            self.nodes.append(Node(name, self.settings, log, session=SESSION, environ=ledger))
        self.beats = [beat for beat in self.beats if beat.poll() is None]
        while len(self.beats) < NUM_BEATS:
            self.beats.append(self._jobctl("beat", "--name", f"beat-{self.report.kills.total()}"))

    def _keep_jobs(self) -> None:
        """Some that are not finished; one that the broker has forgotten is resumed from its directory."""
        unfinished = [spec for spec in self.jobs if not (Path(spec.output) / "_SUCCESS").exists()]
        for spec in unfinished:
            if not self._is_known(spec):
                self._jobctl("resume", spec.output).wait(60)
        for _ in range(NUM_JOBS_AT_ONCE - len(unfinished)):
            self._submit(
                toy_spec(self.directory / f"job-{len(self.jobs)}", NUM_ROWS, shard_rows=32, round_seconds=0.05)
            )

    def _submit(self, spec: JobSpec) -> None:
        self.jobs.append(spec)
        (self.directory / f"{len(self.jobs)}.json").write_text(spec.to_json())
        submit(spec, self.settings, self.store, self.queue)

    def _is_known(self, spec: JobSpec) -> bool:
        try:
            return not read_status(load_plan(Path(spec.output)).job_id, self.store).is_terminal
        except (NotFound, QueueUnavailable):
            return False

    def _kill_one(self) -> None:
        kinds: dict[str, Callable[[], bool]] = {
            "worker process": self._kill_worker_process,
            "node": self._kill_node,
            "beat": self._kill_beat,
            "broker": self._kill_broker,
            "client": self._kill_client,
        }
        (name,) = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if kinds[name]():
            self.report.kills[name] += 1

    def _kill_worker_process(self) -> bool:
        node = self.random.choice(self.nodes)
        children = node.children() if node.process.poll() is None else []
        for child in children:
            child.kill()
        return bool(children)

    def _kill_node(self) -> bool:
        node = self.random.choice(self.nodes)
        return node.process.poll() is None and _kill(node.process)

    def _kill_beat(self) -> bool:
        return _kill(self.random.choice(self.beats))

    def _kill_broker(self) -> bool:
        """Its append-only file may lack the last second."""
        self.server.kill()
        time.sleep(self.random.uniform(0.0, 1.0))
        self.server.restart()
        return True

    def _kill_client(self) -> bool:
        """In the midst of submitting or resuming a job that there is."""
        number = self.random.randrange(len(self.jobs))
        spec_file, output = self.directory / f"{number + 1}.json", self.jobs[number].output
        verb = self.random.choice([("submit", "--spec", str(spec_file)), ("resume", output)])
        client = self._jobctl(*verb)
        time.sleep(self.random.uniform(0.4, 1.6))
        return _kill(client)

    def _check_all(self) -> None:
        deadline = time.monotonic() + JOB_END_SECONDS
        for spec in self.jobs:

            def is_finished(spec: JobSpec = spec) -> bool:
                self._keep_up()
                done = (Path(spec.output) / "_SUCCESS").exists()
                if not done and not self._is_known(spec):
                    self._jobctl("resume", spec.output).wait(60)
                return done

            wait_until(is_finished, deadline - time.monotonic(), f"{spec.output} is finished (seed {self.seed})")
            self._count(spec)
        self.report.num_jobs = len(self.jobs)
        self.report.waste = num_generated(self.ledger) / max(1, self.report.rows_committed)

    def _count(self, spec: JobSpec) -> None:
        rows = check_job(spec)["row_index"].to_pylist()
        self.report.rows_committed += len(rows)
        self.report.rows_lost += NUM_ROWS - len(set(rows))
        self.report.rows_doubled += len(rows) - len(set(rows))

    def _jobctl(self, *arguments: str) -> subprocess.Popen[bytes]:
        environ = {**os.environ, **self.settings.to_environ()}
        with (self.directory / "clients.log").open("ab") as log:
            command = [sys.executable, "-m", "jobs.cli", *arguments]
            return subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=log)

    def _end(self) -> None:
        for node in self.nodes:
            node.end()
        for beat in self.beats:
            beat.kill()
            beat.wait(10)
        self.server.stop()


def _kill(process: subprocess.Popen[bytes]) -> bool:
    """Whether it was alive. Its end proves that the kill landed."""
    if process.poll() is not None:
        return False
    process.send_signal(signal.SIGKILL)
    return process.wait(10) == -signal.SIGKILL
