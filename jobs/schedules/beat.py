"""beat: fires schedules and runs the reconciler. Any number may run: one leads, the others stand by.

A tick fired twice (a leader that lost the lock, a crash between sending and noting) makes the same job, so the lock
only saves work; nothing relies on it.
"""

import logging
import threading
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any

from celery.beat import Service
from redbeat.schedulers import RedBeatScheduler, ensure_conf, get_redis, to_timestamp
from redis.exceptions import LockNotOwnedError

from jobs.control.connection import connect, translated
from jobs.control.queue import CONTROL_QUEUE, Queue
from jobs.control.reconcile import reconcile_forever
from jobs.control.store import Store
from jobs.schedules.entries import LOOP_SECONDS, ScheduleEntry, beat_app
from jobs.schedules.ticks import tick_name
from jobs.settings import Settings
from schemas.errors import InvalidJob, QueueUnavailable, SpecbatchError

LOCK_SECONDS = 15.0  # several loops, so that a slow one does not cost the lead
SILENT_SECONDS = 30.0  # a beat that has not ticked for so long hangs

log = logging.getLogger(__name__)


class ReconcilerEnded(SpecbatchError):
    """The reconciler's thread ended on an error that its log shows; beat ends too, to be started again."""


class TickScheduler(RedBeatScheduler):  # type: ignore[misc]
    """RedBeat, but for its lock (see beat_app), and with a tick's own time in every message."""

    Entry = ScheduleEntry

    def __init__(self, app: Any, reconciler: threading.Thread, name: str, **options: Any) -> None:
        super().__init__(app=app, **options)
        self._reconciler, self._url = reconciler, app.conf.redbeat_redis_url
        self._redis = get_redis(app)
        self._alive_key = alive_key(app, name)
        self._lead = self._redis.lock(lead_key(app), timeout=LOCK_SECONDS)

    def tick(self, **_: Any) -> float:
        """One loop: seconds to wait for the next one. A broker that is away is waited for."""
        if not self._reconciler.is_alive():
            raise ReconcilerEnded("the reconciler has ended; its error is in the log")
        try:
            with translated(self._url):
                return self._tick()
        except QueueUnavailable as error:
            log.warning("%s", error)
            return LOOP_SECONDS

    def _tick(self) -> float:
        self._redis.set(self._alive_key, "ticks", px=round(SILENT_SECONDS * 1000))
        seconds: float = super().tick() if self._leads() else LOOP_SECONDS
        return seconds

    @property
    def schedule(self) -> dict[str, ScheduleEntry]:
        """Entries that are due before the next loop ends."""
        until = to_timestamp(self.app.now()) + self.max_interval
        keys = self._redis.zrangebyscore(self.app.redbeat_conf.schedule_key, 0, until)
        loaded = (self._load(key) for key in keys)
        return {entry.name: entry for entry in loaded if entry is not None}

    def apply_async(self, entry: ScheduleEntry, producer: Any = None, **_: Any) -> Any:
        """Sends the newest tick, then notes it: after a crash between the two it is sent again."""
        tick = tick_name(entry.wanted.cron_line.at_or_before(datetime.now(UTC)))
        sent = self.send_task(entry.task, args=[entry.name, tick], queue=CONTROL_QUEUE, producer=producer)
        self.reserve(entry)
        return sent

    def close(self) -> None:
        """Without this another beat would lead after LOCK_SECONDS only."""
        try:
            with translated(self._url):
                if self._lead.owned():
                    self._lead.release()
                self._redis.delete(self._alive_key)
        except QueueUnavailable as error:
            log.warning("%s", error)
        super().close()

    def _leads(self) -> bool:
        try:
            return bool(self._lead.reacquire() if self._lead.owned() else self._lead.acquire(blocking=False))
        except LockNotOwnedError:
            return False  # lost between the two questions

    def _load(self, key: str) -> ScheduleEntry | None:
        """None for a schedule that was removed meanwhile, or that another version wrote: it must not stop the rest."""
        try:
            entry: ScheduleEntry = ScheduleEntry.from_key(key, app=self.app)
            return entry
        except KeyError:
            return None
        except InvalidJob as error:
            log.error("schedule %s is skipped: %s", key, error)
            return None


def run_beat(settings: Settings, redis_url: str, name: str) -> None:
    """Fires schedules and reconciles until SystemExit or KeyboardInterrupt is raised in this thread."""
    app, stop = beat_app(settings, redis_url), threading.Event()
    with closing(Store(settings, redis_url)) as store, closing(Queue(settings, redis_url)) as queue:
        reconciler = threading.Thread(
            target=reconcile_forever, args=(settings, store, queue, stop), name="reconciler", daemon=True
        )
        reconciler.start()
        try:
            scheduler = partial(TickScheduler, reconciler=reconciler, name=name)
            Service(app, scheduler_cls=scheduler, remote_control=False).start()
        finally:
            stop.set()
            reconciler.join()


def is_beating(settings: Settings, redis_url: str, name: str) -> bool:
    """Whether the beat `name` has ticked within SILENT_SECONDS. Raises QueueUnavailable."""
    app = beat_app(settings, redis_url)
    ensure_conf(app)
    with translated(redis_url), connect(redis_url) as client:
        return bool(client.exists(alive_key(app, name)))


def has_leader(settings: Settings, redis_url: str) -> bool:
    """Whether any beat has ticked within LOCK_SECONDS. Raises QueueUnavailable."""
    app = beat_app(settings, redis_url)
    ensure_conf(app)
    with translated(redis_url), connect(redis_url) as client:
        return bool(client.exists(lead_key(app)))


def lead_key(app: Any) -> str:
    return f"{app.redbeat_conf.key_prefix}:lead"


def alive_key(app: Any, name: str) -> str:
    return f"{app.redbeat_conf.key_prefix}:alive:{name}"
