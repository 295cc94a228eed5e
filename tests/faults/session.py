"""The toy engine for workers that faults are injected into: it keeps a ledger, and stops or dies where it is told to.

FAULT_LEDGER: a file that gets a line for each finished sample, also for those that are lost with their worker.
FAULT_ORDERS: a directory; a file there that is called as a step of the commit, and holds `kill` or `stop`, is an order
to the process that first comes to that step. It renames the file to `<step>.done`, then signals itself.
FAULT_HANG_ONCE: a file; the process that removes it hangs in its first forward.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jobs.storage import commit
from schemas.generation import Completion, Request
from schemas.job import JobSpec
from tests.toy import ToySession

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def load_session(spec: JobSpec, threads: int | None) -> "LedgerSession":
    if "FAULT_ORDERS" in os.environ:
        obey_at_steps()
    return LedgerSession(spec)


class LedgerSession(ToySession):
    def generate(self, requests: Sequence[Request], on_round: Callable[[], None], *more: Any) -> Iterator[Completion]:
        hang_once()
        for completion in super().generate(requests, on_round, *more):
            note(f"{self.spec.output} {completion.row_index} {completion.sample_index}")
            yield completion


def note(line: str) -> None:
    """One write, so that processes that append at once do not mix their lines."""
    path = os.environ.get("FAULT_LEDGER")
    if path is not None:
        file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
        os.write(file, f"{line}\n".encode())
        os.close(file)


def hang_once() -> None:
    """For ever, with its other threads alive, as in a device call that does not return."""
    try:
        os.unlink(os.environ["FAULT_HANG_ONCE"])
    except (KeyError, FileNotFoundError):  # not asked for, or another process hangs
        return
    while True:
        time.sleep(60)


def num_generated(ledger: Path, output: str | None = None) -> int:
    """Finished samples, of one job's output or of all."""
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return sum(output is None or line.rsplit(" ", 2)[0] == output for line in lines)


def obey(name: str) -> None:
    order = Path(os.environ["FAULT_ORDERS"], name)
    try:
        what = order.read_text()
        order.rename(order.with_name(f"{name}.done"))
    except FileNotFoundError:  # no order, or another process has it
        return
    os.kill(os.getpid(), SIGNALS[what])


def _step(name: str) -> None:
    # Its code runs in the commit's module, whose names it sees.
    from tests.faults.session import obey

    obey(name)


def obey_at_steps() -> None:
    """The commit's steps are arguments that default to one function: it gets another body."""
    commit.no_step.__code__ = _step.__code__
