"""The end of a worker process: asked for by SIGTERM, or because its parent is gone."""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

PARENT_POLL_SECONDS = 1.0

log = logging.getLogger(__name__)


class WorkerStopping(Exception):
    """The process was asked to end: save what is finished, give the shard back, and leave."""


class StopRequest:
    """Whether this process was asked to end. A flag, not an exception: it is looked at where stopping is safe."""

    def __init__(self) -> None:
        self.is_set = False

    def check(self) -> None:
        """Raises WorkerStopping."""
        if self.is_set:
            raise WorkerStopping("this worker was asked to end")

    @contextmanager
    def on_sigterm(self) -> Iterator[None]:
        """SIGTERM sets the flag while a shard runs; for the main thread. Celery's own handler would raise anywhere."""
        before = signal.signal(signal.SIGTERM, self._set)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _set(self, signum: int, frame: FrameType | None) -> None:
        self.is_set = True


def end_with_parent(parent: int) -> None:
    """Ends this process soon after its parent, whose process id is given: it would go on writing for nobody.

    Where the system has a parent-death signal Celery has set it; this also holds without one.
    """
    threading.Thread(target=_watch_parent, args=[parent], daemon=True, name="watch-parent").start()


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_SECONDS)
    end_process("the parent process is gone")


def end_process(why: str) -> None:
    """At once, without unwinding: for when the main thread may be stuck inside a device call."""
    log.critical("this worker process ends: %s", why)
    os._exit(70)
