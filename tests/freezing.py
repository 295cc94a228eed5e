"""Work that freezes at its steps: tests run several side by side and decide who goes on, and how far."""

import threading
from collections.abc import Callable
from typing import Any

from jobs.storage.commit import Step
from schemas.errors import CommitConflict, LeaseLost

END = "end"
PATIENCE_SECONDS = 20


class Freezing(threading.Thread):
    """Work that stops at its steps and goes on when it is told to.

    result: what it returned, or the CommitConflict or LeaseLost that it gave up with.
    """

    def __init__(self, work: Callable[[Step], Any]) -> None:
        super().__init__(daemon=True)
        self.goes, self.stops = threading.Semaphore(0), threading.Semaphore(0)
        self.last_step = ""
        self.result: Any = None
        self._work = work
        self._error: BaseException | None = None

    def step(self, name: str) -> None:
        self.last_step = name
        self.stops.release()
        assert self.goes.acquire(timeout=PATIENCE_SECONDS)

    def run(self) -> None:
        try:
            self.step("")
            self.result = self._work(self.step)
        except (CommitConflict, LeaseLost) as error:
            self.result = error
        except BaseException as error:
            self._error = error
        self.last_step = END
        self.stops.release()

    def go_on(self, until: str = END) -> None:
        """Runs until just after a step, or to the end where it does not come to that step. Raises what it raised."""
        if not self.is_alive() and self.last_step != END:
            self.start()
            self._wait()
        while self.last_step not in (until, END):
            self.go_on_once()

    def go_on_once(self) -> None:
        """Runs to the next step. Raises what the work raised."""
        self.goes.release()
        self._wait()
        if self._error is not None:
            raise self._error

    def _wait(self) -> None:
        assert self.stops.acquire(timeout=PATIENCE_SECONDS)
