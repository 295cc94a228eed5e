"""The processes that one jobctl keeps up: started again when they die, and stopped together."""

import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from jobs.local.processes import STOP_GRACE_SECONDS, kill_session, last_words, send_signal, spawn, stop
from schemas.errors import SpecbatchError

MAX_QUICK_DEATHS = 4
QUICK_DEATH_SECONDS = 60.0
FIRST_BACKOFF_SECONDS = 0.5


class ChildDied(SpecbatchError):
    """A child process keeps ending. The user reads its log, which the message names."""


@dataclass
class Child:
    """One process that should be up: started again with backoff, given up after MAX_QUICK_DEATHS in a row."""

    name: str
    command: Sequence[str]
    log_path: Path
    environment: Mapping[str, str] | None = None
    process: subprocess.Popen[bytes] | None = None
    num_quick_deaths: int = 0
    started_at: float = 0.0
    restart_at: float = 0.0

    def start(self) -> None:
        self.process = spawn(self.command, self.log_path, self.environment)
        self.started_at = time.monotonic()

    def keep_up(self) -> None:
        """Notices a death, and starts the process again when its backoff is over. Raises ChildDied."""
        if self.process is None:
            if time.monotonic() >= self.restart_at:
                self.start()
        elif (exit_code := self.process.poll()) is not None:
            self._count_death(exit_code)

    def _count_death(self, exit_code: int) -> None:
        assert self.process is not None
        kill_session(self.process.pid)
        self.process = None
        lived_seconds = time.monotonic() - self.started_at
        self.num_quick_deaths = self.num_quick_deaths + 1 if lived_seconds < QUICK_DEATH_SECONDS else 1
        if self.num_quick_deaths > MAX_QUICK_DEATHS:
            raise ChildDied(
                f"{self.name} ended {self.num_quick_deaths} times in a row ({_how_ended(exit_code)}); "
                f"its log is {self.log_path}{last_words(self.log_path)}"
            )
        self.restart_at = time.monotonic() + FIRST_BACKOFF_SECONDS * 2 ** (self.num_quick_deaths - 1)


@dataclass
class Children:
    """The processes that one jobctl started; they are stopped together, the newest first."""

    children: list[Child] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, child: Child) -> None:
        child.start()
        self.children.append(child)

    def keep_up(self) -> None:
        for child in self.children:
            child.keep_up()

    def stop(self, grace_seconds: float = STOP_GRACE_SECONDS) -> None:
        """A second Ctrl-C meanwhile ends the grace."""
        running = [c.process for c in reversed(self.children) if c.process is not None]
        deadline = time.monotonic() + grace_seconds
        try:
            for process in running:
                send_signal(process, signal.SIGTERM)
            for process in running:
                stop(process, max(0.0, deadline - time.monotonic()))
        except BaseException:
            for process in running:
                stop(process, grace_seconds=0)
            raise
        finally:
            self.children.clear()


def _how_ended(exit_code: int) -> str:
    return f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
