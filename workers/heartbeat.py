"""A node's heartbeat: that it is there, on which device, and which queues it serves."""

import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Self

from jobs.clock import utc_now
from jobs.control.state import WorkerRecord
from jobs.control.store import HEARTBEAT_SECONDS, Store
from schemas.errors import QueueUnavailable
from workers.context import WorkerOptions

log = logging.getLogger(__name__)


class Heartbeat:
    """Beats in a thread while its block runs; a broker that is away is waited for."""

    def __init__(self, store: Store, options: WorkerOptions, queues: Sequence[str]) -> None:
        self._store = store
        self._record = WorkerRecord(
            name=options.name,
            device=options.device,
            queues=tuple(queues),
            hostname=socket.gethostname(),
            pid=os.getpid(),
            started_at=utc_now(),
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="heartbeat")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._try(lambda: self._store.forget_worker(self._record.name))

    def _beat(self) -> None:
        while True:
            self._try(lambda: self._store.beat(self._record))
            if self._ended.wait(HEARTBEAT_SECONDS / 4):
                return

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except QueueUnavailable as error:
            log.warning("heartbeat: %s", error)
