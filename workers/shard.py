"""The worker's story: one attempt at one shard."""

import logging
import time
from pathlib import Path

from jobs.allowed import check_allowed
from jobs.control.state import JobRecord
from jobs.plan.plans import plan_of
from jobs.storage.batch_sizes import fitting_batch_size
from jobs.storage.commit import begin_attempt, prepare_shard
from jobs.storage.finish import commit_job
from jobs.storage.generations import wanted_generation
from jobs.storage.inside import check_inside
from jobs.storage.layout import Layout
from schemas.errors import MessageRefused, QueueUnavailable
from schemas.message import ShardMessage
from schemas.plan import Plan, ShardPlan
from workers.attempt import Attempt
from workers.context import Session, WorkerContext
from workers.generate import generate_rows
from workers.kept_rows import read_kept
from workers.lease import take_lease
from workers.publish import Generated, publish_shard
from workers.reader import read_shard
from workers.row_book import RowBook

log = logging.getLogger(__name__)


def run_shard(message: ShardMessage, context: WorkerContext) -> None:
    """Does a shard, unless the message comes late or another attempt has it.

    Whatever ends it early, finished rows are saved. Raises InvalidJob where no worker can do the job; JobCancelled,
    LeaseLost, CommitConflict and WorkerStopping where it is not to go on; ShardRetryable, ShardFailed and
    CommitUnknown for what another attempt may do better; NotFound for a forgotten job; MessageRefused;
    QueueUnavailable.
    """
    record = context.store.job(message.job_id)
    plan, layout = plan_of(record), Layout(Path(record.output))
    shard = shard_of(plan, message.shard_index)
    check_allowed(plan.spec, layout, context.settings)
    check_inside(layout.part_path(shard).parent, layout)
    lease = take_lease(context.store, context.settings, message, context.options.name, shard.num_rows)
    if lease is None:
        return
    with lease:
        number = begin_attempt(layout, shard.shard_index)
        if prepare_shard(layout, shard, number) is None:
            generation = wanted_generation(layout, shard.shard_index)
            do_shard(Attempt(context, plan, shard, layout, lease, number, generation))
    finish_job(context, record, plan, layout)


def shard_of(plan: Plan, shard_index: int) -> ShardPlan:
    """Raises MessageRefused."""
    if not 0 <= shard_index < len(plan.shards):
        raise MessageRefused(f"{plan.job_id} has no shard {shard_index}")
    return plan.shards[shard_index]


def do_shard(attempt: Attempt) -> None:
    """Read, load, generate, write, commit. Of a shard that is retried only the rows that failed."""
    attempt.lease.report(attempt=attempt.number)
    kept = read_kept(attempt.layout, attempt.plan, attempt.shard, attempt.generation)
    shard_rows = read_shard(attempt.plan, attempt.shard)
    if kept is not None:
        shard_rows = shard_rows.only(kept.failed_rows)
        attempt.lease.report(num_rows=len(shard_rows.rows))
    with RowBook(attempt) as book:
        session, load_seconds = load(attempt)
        began = time.monotonic()
        attempt.lease.report(phase="generating")
        speculation = generate_rows(attempt, session, shard_rows.rows, book)
        generate_seconds = time.monotonic() - began
        attempt.lease.report(phase="committing")
        seconds = (load_seconds, generate_seconds, book.checkpoint_seconds)
        publish_shard(attempt, Generated(shard_rows, book.outcomes, session, speculation, *seconds, kept))


def load(attempt: Attempt) -> tuple[Session, float]:
    """The session, and the seconds that it took to get it ready."""
    attempt.lease.report(phase="loading")
    began = time.monotonic()
    spec = attempt.plan.spec
    fitting = fitting_batch_size(attempt.layout, spec.batch_size)
    session = attempt.context.session_for(spec.model_copy(update={"batch_size": fitting}))
    attempt.check()
    return session, time.monotonic() - began


def finish_job(context: WorkerContext, record: JobRecord, plan: Plan, layout: Layout) -> None:
    """Commits the job where this was its last shard. What cannot be done now is left to the reconciler."""
    try:
        if commit_job(layout, plan) is not None:
            context.store.end_job(plan.job_id, "finished", record.num_reopened)
    except (OSError, QueueUnavailable) as error:
        log.warning("%s is done but could not be finished here: %s", plan.job_id, error)
