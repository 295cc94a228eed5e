"""The worker's story: one attempt at one shard."""

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.clock import utc_now
from jobs.plan.plans import plan_of
from jobs.storage.checkpoint import clear
from jobs.storage.commit import begin_attempt, commit_shard, new_staged_path, prepare_shard
from jobs.storage.finish import commit_job
from jobs.storage.layout import Layout
from jobs.storage.receipts import committed_shards
from schemas.errors import LeaseLost, QueueUnavailable, SpecbatchError
from schemas.generation import RowOutcome, SampleKey
from schemas.message import ShardMessage
from schemas.plan import Plan, ShardPlan
from schemas.receipt import Receipt, ShardStatistics
from workers.attempt import Attempt
from workers.context import Session, WorkerContext
from workers.generate import generate_rows
from workers.lease import take_lease
from workers.reader import ShardRows, read_shard
from workers.row_book import RowBook
from workers.totals import RowTotals
from workers.writer import PartFacts, write_part

log = logging.getLogger(__name__)


class MessageRefused(SpecbatchError):
    """No task can do what the message says; it is kept for people to look at and not tried again."""


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
    lease = take_lease(context.store, context.settings, message, context.options.name, shard.num_rows)
    if lease is None:
        return
    with lease:
        attempt = Attempt(context, plan, shard, layout, lease, begin_attempt(layout, shard.shard_index))
        if prepare_shard(layout, shard, attempt.number) is None:
            do_shard(attempt)
    finish_job(context, plan, layout)


def shard_of(plan: Plan, shard_index: int) -> ShardPlan:
    """Raises MessageRefused."""
    if not 0 <= shard_index < len(plan.shards):
        raise MessageRefused(f"{plan.job_id} has no shard {shard_index}")
    return plan.shards[shard_index]


def do_shard(attempt: Attempt) -> None:
    """Read, load, generate, write, commit."""
    attempt.lease.report(attempt=attempt.number)
    shard_rows = read_shard(attempt.plan, attempt.shard)
    with RowBook(attempt) as book:
        session, load_seconds = load(attempt)
        began = time.monotonic()
        attempt.lease.report(phase="generating")
        generate_rows(attempt, session, shard_rows.rows, book)
        generate_seconds = time.monotonic() - began
        attempt.lease.report(phase="committing")
        publish_shard(attempt, shard_rows, book.outcomes, session, load_seconds, generate_seconds)


def load(attempt: Attempt) -> tuple[Session, float]:
    """The session, and the seconds that it took to get it ready."""
    attempt.lease.report(phase="loading")
    began = time.monotonic()
    session = attempt.context.session_for(attempt.plan.spec)
    attempt.check()
    return session, time.monotonic() - began


def publish_shard(
    attempt: Attempt,
    shard_rows: ShardRows,
    outcomes: dict[SampleKey, RowOutcome],
    session: Session,
    load_seconds: float,
    generate_seconds: float,
) -> None:
    """Writes the part aside and commits it."""
    began = time.monotonic()
    staged = new_staged_path(attempt.layout, attempt.shard, attempt.number)
    facts = write_part(staged, attempt.plan, attempt.shard, shard_rows, outcomes, session.versions())
    try:
        attempt.lease.confirm()
    except LeaseLost:
        # With the job finished by others nobody would come to clear it away.
        staged.unlink(missing_ok=True)
        raise
    totals = RowTotals.of(outcomes.values())
    statistics = totals.with_seconds(generate_seconds, load_seconds, time.monotonic() - began)
    receipt = receipt_of(attempt, staged, facts, statistics, session.speculation())
    commit_shard(attempt.layout, attempt.plan, attempt.shard, receipt, staged)
    clear(attempt.layout, attempt.shard)


def receipt_of(
    attempt: Attempt, staged: Path, facts: PartFacts, statistics: ShardStatistics, speculation: Mapping[str, Any]
) -> Receipt:
    return Receipt(
        job_id=attempt.plan.job_id,
        shard_index=attempt.shard.shard_index,
        attempt=attempt.number,
        staged=staged.name,
        part=attempt.layout.part_name(attempt.shard),
        first_row=attempt.shard.first_row,
        num_rows=facts.num_rows,
        num_samples=facts.num_samples,
        num_ok=facts.num_ok,
        num_failed=facts.num_failed,
        size_bytes=facts.size_bytes,
        sha256=facts.sha256,
        worker=attempt.context.options.name,
        committed_at=utc_now(),
        statistics=statistics,
        speculation=dict(speculation) or None,
    )


def finish_job(context: WorkerContext, plan: Plan, layout: Layout) -> None:
    """Commits the job where this was its last shard. What cannot be done now is left to the reconciler."""
    try:
        if len(committed_shards(layout)) == len(plan.shards):
            commit_job(layout, plan)
            context.store.end_job(plan.job_id, "finished")
    except (OSError, QueueUnavailable) as error:
        log.warning("%s is done but could not be finished here: %s", plan.job_id, error)
