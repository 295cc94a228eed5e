"""The reconciler: compares plan, receipts, leases and queue, and enqueues what is missing.

The queue delivers at least once, sometimes twice and, when a broker dies, not at all. Nothing here relies on it:
a shard that lacks the wanted receipt, a lease and a message on its way gets a new message, and whatever is late is
refused by the store. So a look may be repeated, interrupted, and done by several processes at once.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jobs.allowed import check_output
from jobs.control.limits import find_excess
from jobs.control.queue import LiveDelivery, Queue
from jobs.control.state import JobRecord, ShardStates
from jobs.control.store import Store
from jobs.plan.plans import plan_of
from jobs.settings import Settings
from jobs.storage.finish import commit_job
from jobs.storage.generations import missing_shards
from jobs.storage.layout import Layout
from schemas.errors import InvalidJob, NotFound, QueueUnavailable, ShardFailed
from schemas.message import ShardMessage

MAX_QUEUED_SHARDS = 1000  # of one job: a look reads every message, and other jobs' shards come in between

log = logging.getLogger(__name__)


def reconcile_forever(settings: Settings, store: Store, queue: Queue, stop: threading.Event) -> None:
    """Looks every reconcile_seconds until `stop` is set; a broker that is away is waited for."""
    while not stop.is_set():
        try:
            reconcile_all(settings, store, queue)
        except QueueUnavailable as error:
            log.warning("%s", error)
        stop.wait(settings.reconcile_seconds)


def reconcile_all(settings: Settings, store: Store, queue: Queue) -> None:
    """One look at every open job; one that cannot be looked at does not stop the others. Raises QueueUnavailable."""
    deliveries = _by_job(queue.live_deliveries())
    for job_id in store.open_jobs():
        try:
            _reconcile(job_id, deliveries[job_id], settings, store, queue)
        except NotFound:
            log.warning("%s was forgotten while it was looked at", job_id)
        except OSError as error:
            log.warning("%s cannot be looked at now: %s", job_id, error)


def reconcile_job(job_id: str, settings: Settings, store: Store, queue: Queue) -> int:
    """One look at one job; returns how many shards were enqueued.

    Raises QueueUnavailable, and NotFound where the broker does not know the job.
    """
    deliveries = _by_job(queue.live_deliveries())
    return _reconcile(job_id, deliveries[job_id], settings, store, queue)


def _by_job(deliveries: Iterable[LiveDelivery]) -> Mapping[str, list[LiveDelivery]]:
    jobs: defaultdict[str, list[LiveDelivery]] = defaultdict(list)
    for delivery in deliveries:
        jobs[delivery.job_id].append(delivery)
    return jobs


def _reconcile(job_id: str, deliveries: Sequence[LiveDelivery], settings: Settings, store: Store, queue: Queue) -> int:
    record = store.job(job_id)
    if record.cancelled_at or record.failed:
        return 0
    if record.ended == "incomplete":
        # Dead letters may have been purged since: they are no reason to begin anew.
        store.end_job(job_id, record.ended, record.num_reopened)
        return 0
    try:
        check_output(Layout(Path(record.output)), settings)
    except InvalidJob as error:
        # Others who share the broker may write there; a worker that may not says so in the job's name.
        log.warning("%s is left to others: %s", job_id, error)
        return 0
    try:
        return _look(record, deliveries, settings, store, queue)
    except (InvalidJob, NotFound, ShardFailed) as error:
        # Its files are gone or damaged; no attempt can help that.
        log.warning("%s fails: %s", job_id, error)
        store.fail_job(job_id, str(error))
        return 0


def _look(record: JobRecord, deliveries: Sequence[LiveDelivery], settings: Settings, store: Store, queue: Queue) -> int:
    """A shard moves from the queue to a lease to a receipt: read in this order, it is seen at least once."""
    states = store.shard_states(record.job_id)
    plan, layout = plan_of(record), Layout(Path(record.output))
    missing = missing_shards(layout, plan)
    if not missing:
        if commit_job(layout, plan) is not None:
            store.end_job(record.job_id, "finished", record.num_reopened)
    elif excess := find_excess(record, plan, states, missing, store):
        log.warning("%s is given up: %s", record.job_id, excess.message)
        store.fail_job(record.job_id, excess.message, excess.kind)
    elif all(shard in states.dead for shard in missing):
        store.end_job(record.job_id, "incomplete", record.num_reopened)
    else:
        lost = lost_shards(missing, states, deliveries, settings)
        return _enqueue(record, lost, states, room=MAX_QUEUED_SHARDS - len(deliveries), store=store, queue=queue)
    return 0


def lost_shards(
    missing: Iterable[int], states: ShardStates, deliveries: Iterable[LiveDelivery], settings: Settings
) -> list[int]:
    """Of the missing shards those that nobody runs and no message stands for, in order.

    A message stands for its shard while it waits in a queue; with a worker only for grace_seconds, within which
    the worker has to take the shard's lease; and only if it is the newest and has not served an attempt yet.
    """
    on_their_way = {
        live.shard_index
        for live in deliveries
        if live.delivery == states.deliveries.get(live.shard_index)
        and live.delivery > states.taken.get(live.shard_index, 0)
        and (live.received_seconds is None or live.received_seconds < settings.grace_seconds)
    }
    taken_care_of = on_their_way | states.running.keys() | states.dead.keys()
    return [shard for shard in missing if shard not in taken_care_of]


def _enqueue(record: JobRecord, lost: Sequence[int], states: ShardStates, room: int, store: Store, queue: Queue) -> int:
    """Up to `room` messages; returns how many.

    Shards that the store refuses, as they wait after a failure, do not block later ones.
    """
    messages: list[ShardMessage] = []
    unasked = list(lost)
    while unasked and len(messages) < room:
        asked, unasked = unasked[: room - len(messages)], unasked[room - len(messages) :]
        messages += store.claim_deliveries(record.job_id, {shard: states.deliveries.get(shard, 0) for shard in asked})
    if messages:
        queue.enqueue_shards(messages, record.device)
        log.info("%s: enqueued %d shards, from shard %d", record.job_id, len(messages), messages[0].shard_index)
    return len(messages)
