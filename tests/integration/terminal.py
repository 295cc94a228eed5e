"""jobctl as a person starts it: a process in a terminal of its own, in a working and a data directory of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil

from schemas.job import JobSpec
from tests.integration.conftest import ROOT, wait_until

TOY = ("--session", "tests.toy:load_session")
# Impatient, so that what waits for a lease to pass is quick.
PATIENCE = {"JOBCTL_LEASE_SECONDS": "2", "JOBCTL_RECONCILE_SECONDS": "0.3", "JOBCTL_GRACE_SECONDS": "5"}


class Running:
    """A jobctl that was started; `out` and `err` are what it has printed so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: dict[str, list[str]] = {"out": [], "err": []}
        self._threads = [
            threading.Thread(target=self._collect, args=[stream, name], daemon=True)
            for stream, name in ((process.stdout, "out"), (process.stderr, "err"))
        ]
        for thread in self._threads:
            thread.start()

    def _collect(self, stream: Any, name: str) -> None:
        for line in stream:
            self._lines[name].append(line)

    @property
    def out(self) -> str:
        return "".join(self._lines["out"])

    @property
    def err(self) -> str:
        return "".join(self._lines["err"])

    def ctrl_c(self) -> None:
        """To the whole foreground process group, as a terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self, seconds: float = 60.0) -> int:
        """Its exit code, when it ends."""
        code = self.process.wait(seconds)
        for thread in self._threads:
            thread.join()
        return code


class Terminal:
    """Starts jobctl over one data directory. `close` checks that none of its processes is left."""

    def __init__(self, data_dir: Path, cwd: Path = ROOT, **environ: str) -> None:
        self.data_dir, self.cwd = data_dir, cwd
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("JOBCTL_")}
        self.environ = {**inherited, **PATIENCE, "JOBCTL_DATA_DIR": str(data_dir), "NO_COLOR": "1", **environ}

    def start(self, *arguments: str) -> Running:
        return Running(
            subprocess.Popen(
                [sys.executable, "-m", "jobs.cli", *arguments],
                cwd=self.cwd,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )

    def run(self, *arguments: str, code: int = 0, seconds: float = 60.0) -> Running:
        """Runs it to its end, which must be with the exit code `code`."""
        running = self.start(*arguments)
        assert running.end(seconds) == code, running.out + running.err
        return running

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "-o", "json").out)

    def processes(self) -> list[psutil.Process]:
        """Everything that was started over our data directory and still runs."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            ours = process.environ().get("JOBCTL_DATA_DIR") == str(self.data_dir)
            return ours and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False

    def close(self) -> None:
        left = [(process.pid, process.cmdline()) for process in self.processes()]
        for pid, _ in left:
            os.kill(pid, signal.SIGKILL)
        assert left == [], left

    def wait_mid_shard(self, spec: JobSpec) -> None:
        """Until some shard is committed and another one is begun."""
        attempts = Path(spec.output) / "_jobctl" / "attempts"
        receipts = Path(spec.output) / "_jobctl" / "receipts"

        def under_way() -> bool:
            return 0 < len(list(receipts.glob("0*.json"))) < len(list(attempts.glob("*.fence")))

        wait_until(under_way, 60, "a shard is committed and another one under way")


def arguments_of(spec: JobSpec, directory: Path) -> tuple[str, ...]:
    """`--spec FILE` and the toy engine."""
    file = directory / "spec.json"
    file.write_text(spec.to_json())
    return "--spec", str(file), *TOY
