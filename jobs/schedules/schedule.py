"""A schedule's tick becomes a job: the same tick is the same job, however often it fires."""

import logging
import time
from contextlib import closing

from jobs.control.queue import Queue
from jobs.control.store import Store
from jobs.schedules.entries import Schedules
from jobs.schedules.spec import LastTick
from jobs.schedules.ticks import parse_tick
from jobs.settings import Settings
from jobs.submit import submit
from schemas.errors import InvalidJob, NotFound, QueueUnavailable
from schemas.job import JobSpec

SUBMIT_WAITS_SECONDS = (1, 2, 4, 8, 16)  # a broker's restart must not cost a tick

log = logging.getLogger(__name__)


def run_tick(name: str, tick: str, settings: Settings, redis_url: str) -> str | None:
    """Submits the job of a schedule's tick, and notes what became of it. The same tick is the same job.

    Returns its id, or None where the schedule was removed meanwhile. Raises InvalidJob as submit does, and
    QueueUnavailable where the broker stays away.
    """
    for wait_seconds in SUBMIT_WAITS_SECONDS:
        try:
            return _run_tick(name, tick, settings, redis_url)
        except QueueUnavailable as error:
            log.warning("schedule %s at %s waits: %s", name, tick, error)
            time.sleep(wait_seconds)
    return _run_tick(name, tick, settings, redis_url)


def _run_tick(name: str, tick: str, settings: Settings, redis_url: str) -> str | None:
    with closing(Schedules(settings, redis_url)) as schedules:
        try:
            spec = schedules.get(name).spec_at(parse_tick(tick))
        except NotFound as error:
            log.warning("tick %s: %s", tick, error)
            return None
        try:
            job_id = _submit(spec, settings, redis_url, run_id=f"{name}/{tick}")
        except InvalidJob as error:
            schedules.note(name, LastTick(tick=tick, error=str(error)))
            raise
        schedules.note(name, LastTick(tick=tick, job_id=job_id))
        return job_id


def _submit(spec: JobSpec, settings: Settings, redis_url: str, run_id: str) -> str:
    with closing(Store(settings, redis_url)) as store, closing(Queue(settings, redis_url)) as queue:
        return submit(spec, settings, store, queue, run_id=run_id)
