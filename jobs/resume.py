"""Resuming a job from its output directory alone, whatever the broker has forgotten, and wherever it lies."""

from pathlib import Path

from jobs.allowed import check_allowed
from jobs.control.queue import Queue
from jobs.control.reconcile import reconcile_job
from jobs.control.state import JobRecord
from jobs.control.status import read_status
from jobs.control.store import Store
from jobs.plan.planning import load_plan
from jobs.plan.saved import check_unchanged
from jobs.settings import Settings
from jobs.storage.finish import finished_manifest
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipts
from schemas.errors import InvalidJob, NotFound
from schemas.limits import LIMITS, Limits
from schemas.plan import Plan

AS_THEY_ARE = Limits()


def resume(output: Path, settings: Settings, store: Store, queue: Queue, limits: Limits = AS_THEY_ARE) -> str:
    """Lets the job of a directory go on where it stopped; returns its id. A finished one is left as it is.

    limits: those that are given take the place of the job's. Two at once are harmless. Raises NotFound where there is
    no job, InvalidJob where its plan, input or model is not as it was, and QueueUnavailable.
    """
    store.ping()
    plan = load_plan(output)
    if is_finished(plan, output):
        return plan.job_id
    check_allowed(plan.spec, Layout(output), settings)
    check_saved(plan, output, store)
    register_saved(plan, output, store, limits)
    start_again(plan.job_id, settings, store, queue)
    return plan.job_id


def check_saved(plan: Plan, output: Path, store: Store) -> None:
    """Raises InvalidJob where plan, input or models are not as they were, or the job lies elsewhere too."""
    check_unchanged(plan, output)
    if store.has_job(plan.job_id):
        _check_not_a_copy(store.job(plan.job_id), output)


def register_saved(plan: Plan, output: Path, store: Store, limits: Limits = AS_THEY_ARE) -> None:
    """Makes the broker know the saved job as it lies in `output` now."""
    record = JobRecord.of(plan).model_copy(update={"output": str(output.absolute())})
    try:
        known = store.job(plan.job_id)
    except NotFound:
        known = record
    kept = {name: getattr(known, name) for name in LIMITS} | limits.model_dump(exclude_none=True)
    store.register_job(record.with_limits(Limits(**kept)))


def is_finished(plan: Plan, output: Path) -> bool:
    """Told by the files alone."""
    layout = Layout(output)
    return finished_manifest(layout, plan, read_receipts(layout)) is not None


def start_again(job_id: str, settings: Settings, store: Store, queue: Queue) -> None:
    """What stopped the job is taken back, and its missing shards are enqueued."""
    reopen_if_stopped(job_id, store)
    reconcile_job(job_id, settings, store, queue)


def reopen_if_stopped(job_id: str, store: Store) -> None:
    if read_status(job_id, store).state in ("cancelled", "failed", "incomplete"):
        store.reopen_job(job_id)


def _check_not_a_copy(known: JobRecord, output: Path) -> None:
    """Two directories of one job would each get some of its shards."""
    other = Path(known.output)
    try:
        is_there = load_plan(other).job_id == known.job_id and not other.samefile(output)
    except (NotFound, InvalidJob):
        return
    if is_there:
        raise InvalidJob(f"{known.job_id} is in {other}, and {output} is a copy of it; resume that one, or remove it")
