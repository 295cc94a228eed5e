"""The lease: the right of one attempt to work on a shard, kept while its rounds go on."""

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, Self

from jobs.control.state import ShardProgress
from jobs.control.store import Outcome, RenewAnswer, Store
from jobs.settings import Settings
from jobs.texts import one_line
from schemas.errors import CommitConflict, InvalidJob, JobCancelled, LeaseLost, QueueUnavailable, ShardFailed
from schemas.message import ShardMessage
from workers.stopping import WorkerStopping, end_process

LONGEST_BEAT_SECONDS = 1.0  # so that a cancelled job stops within about a second
LOADING_PATIENCE = 6  # a model that is being downloaded has no rounds

log = logging.getLogger(__name__)


class Lease:
    """A lease that was taken. As a context it is renewed by a thread, and given back at the end.

    The thread renews only while `check` or `report` is called at least every stall_seconds. The holder judges by
    its own monotonic clock too: where no renewal was answered for lease_seconds, another attempt may have begun.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        message: ShardMessage,
        owner: str,
        progress: ShardProgress,
        taken_at: float,
        on_stall: Callable[[str], None],
    ) -> None:
        self.progress = progress
        self._store, self._settings, self._owner, self._on_stall = store, settings, owner, on_stall
        self._job_id, self._shard = message.job_id, message.shard_index
        self._held_until = taken_at + settings.lease_seconds
        self._answer: RenewAnswer = "held"
        self._moved_at = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True, name="lease")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        try:
            text = one_line(error) if error is not None else ""
            outcome = outcome_of(error)
            self._store.release_lease(self._job_id, self._shard, self._owner, outcome, text, self.progress)
        except QueueUnavailable as unavailable:
            # The lease passes by itself, and a failure that nobody heard of counts all the same.
            log.warning("shard %d of %s could not be given back: %s", self._shard, self._job_id, unavailable)

    def check(self) -> None:
        """Call between rounds; does no I/O. Raises LeaseLost and JobCancelled."""
        self._moved_at = time.monotonic()
        if self._answer != "held":
            self._raise(self._answer)
        if self._moved_at > self._held_until:
            raise LeaseLost(f"shard {self._shard}: the broker has not confirmed the lease in time")

    def report(self, **changes: Any) -> None:
        """Changes the progress that others see."""
        self._moved_at = time.monotonic()
        self.progress = self.progress.model_copy(update=changes)

    def confirm(self) -> None:
        """Call before publishing. Raises LeaseLost where another attempt has the shard.

        A broker out of reach, or a user who cancels now, does not stop a shard that is done: the receipt decides.
        """
        self._moved_at = time.monotonic()
        self._renew()
        if self._answer in ("lost", "unknown"):
            self._raise(self._answer)

    def _keep(self) -> None:
        beat_seconds = min(self._settings.lease_seconds / 3, LONGEST_BEAT_SECONDS)
        while not self._ended.wait(beat_seconds):
            if self._is_stalled():
                self._end_when_lost()
            elif self._answer == "held":
                self._renew()

    def _renew(self) -> None:
        asked_at = time.monotonic()
        try:
            self._answer = self._store.renew_lease(self._job_id, self._shard, self._owner, self.progress)
        except QueueUnavailable as error:
            log.warning("the lease of shard %d of %s could not be renewed: %s", self._shard, self._job_id, error)
        else:
            self._held_until = asked_at + self._settings.lease_seconds

    def _is_stalled(self) -> bool:
        patience = LOADING_PATIENCE if self.progress.phase == "loading" else 1
        return time.monotonic() - self._moved_at > self._settings.stall_seconds * patience

    def _end_when_lost(self) -> None:
        if time.monotonic() > self._held_until:
            self._on_stall(f"shard {self._shard} of {self._job_id} has not moved for {self._settings.stall_seconds} s")

    def _raise(self, answer: RenewAnswer) -> NoReturn:
        if answer in ("cancelled", "failed"):
            raise JobCancelled(f"{self._job_id} was {answer}")
        raise LeaseLost(f"shard {self._shard}: another attempt may hold it, the lease has passed")


def take_lease(
    store: Store,
    settings: Settings,
    message: ShardMessage,
    worker: str,
    num_rows: int,
    on_stall: Callable[[str], None] = end_process,
) -> Lease | None:
    """The lease, or None where there is nothing to do: stopped, done by another, or a message that comes late.

    Raises QueueUnavailable.
    """
    owner = f"{worker}:{os.getpid()}:{uuid.uuid4().hex}"
    progress = ShardProgress(worker=worker, num_rows=num_rows)
    taken_at = time.monotonic()
    answer = store.take_lease(message, owner, progress)
    if answer != "taken":
        log.info(
            "dropped message %d of shard %d of %s: %s", message.delivery, message.shard_index, message.job_id, answer
        )
        return None
    return Lease(store, settings, message, owner, progress, taken_at, on_stall)


def outcome_of(error: BaseException | None) -> Outcome:
    """What the end of an attempt says about its shard."""
    if error is None or isinstance(error, CommitConflict):
        return "done"
    if isinstance(error, JobCancelled | LeaseLost | InvalidJob | WorkerStopping):
        return "forgiven"
    return "dead" if isinstance(error, ShardFailed) else "failed"
