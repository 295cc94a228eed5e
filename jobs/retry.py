"""Retry: failed rows are generated again, as the next generation of their shards; rows that are ok are kept.

Every step may be the last of this process. The markers come first and are durable: they say what a retry wants, so the
next one finds it, whatever this one still did, and asks for nothing more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.allowed import check_allowed
from jobs.control.queue import Queue
from jobs.control.reconcile import reconcile_job
from jobs.control.store import Store
from jobs.plan.planning import load_plan
from jobs.resume import check_saved, is_finished, register_saved
from jobs.settings import Settings
from jobs.storage.commit import Step, no_step
from jobs.storage.durable import retryable_io
from jobs.storage.generations import missing_shards, want_generations, wanted_generations, withdraw_success
from jobs.storage.layout import Layout
from jobs.storage.receipts import committed_shards, damage_of, read_receipts
from schemas.errors import InvalidJob, NotFound
from schemas.plan import Plan
from schemas.receipt import Receipt


@dataclass(frozen=True, slots=True)
class Retried:
    """What goes again. num_rows, num_shards: failed rows, those of damaged parts, and their shards. num_missing: shards
    that never were done."""

    job_id: str
    num_rows: int = 0
    num_shards: int = 0
    num_missing: int = 0


def retry(
    output: Path, settings: Settings, store: Store, queue: Queue, failed_only: bool = False, step: Step = no_step
) -> Retried:
    """Asks for another generation of every shard that has failed rows or whose part is damaged, and lets the job run.

    Shards that were given up get new attempts too, unless failed_only. While a retry is under way another one only
    says so. Raises InvalidJob where the job runs, or where plan, input or models are not as they were; NotFound,
    ShardRetryable on I/O errors, and QueueUnavailable, after which it may be called again.
    """
    store.ping()
    plan, layout = load_plan(output), Layout(output)
    if _is_running(plan, output, store):
        return _go_on(plan, layout, settings, store, queue)
    check_allowed(plan.spec, layout, settings)
    check_saved(plan, output, store)
    failed = ask_again(layout, plan, step)
    num_missing = 0 if failed_only else len(plan.shards) - len(committed_shards(layout))
    if failed or num_missing:
        register_saved(plan, output, store)
        step("registered")
        _let_run(plan.job_id, failed, store, failed_only)
        step("reopened")
        reconcile_job(plan.job_id, settings, store, queue)
    return _retried(plan, failed, num_missing)


def _is_running(plan: Plan, output: Path, store: Store) -> bool:
    try:
        record = store.job(plan.job_id)
    except NotFound:
        return False
    is_stopped = record.cancelled_at or record.failed or record.ended
    return not is_stopped and not is_finished(plan, output)


def _go_on(plan: Plan, layout: Layout, settings: Settings, store: Store, queue: Queue) -> Retried:
    """Of a job that runs: a retry may have been killed before it enqueued what it wants."""
    wanted, receipts = wanted_generations(layout), read_receipts(layout)
    redone = {shard: receipt for shard, receipt in receipts.items() if receipt.generation < wanted.get(shard, 0)}
    if not redone:
        raise InvalidJob(f"{plan.job_id} is running; `jobctl wait` for it or `jobctl cancel` it first")
    reconcile_job(plan.job_id, settings, store, queue)
    return _retried(plan, redone)


def ask_again(layout: Layout, plan: Plan, step: Step = no_step) -> dict[int, Receipt]:
    """Marks what a retry wants; returns the receipts of shards to do again. Reads every part. Raises ShardRetryable."""
    with retryable_io(f"cannot read the parts of {layout.output}"):
        failed = {
            shard: receipt
            for shard, receipt in read_receipts(layout).items()
            if receipt.num_failed or damage_of(layout, receipt) is not None
        }
    step("failures_read")
    if failed:
        with retryable_io(f"cannot write to {layout.output}"):
            want_generations(layout, {shard: receipt.generation + 1 for shard, receipt in failed.items()})
            step("marked")
            if missing_shards(layout, plan):  # not where another retry has done all of it meanwhile
                withdraw_success(layout)
            step("success_withdrawn")
    return failed


def _let_run(job_id: str, failed: Mapping[int, Receipt], store: Store, failed_only: bool) -> None:
    if not failed_only:
        store.reopen_job(job_id)
        return
    for shard in failed.keys() & store.dead_shards(job_id).keys():
        store.revive_shard(job_id, shard)
    store.let_run(job_id)


def _retried(plan: Plan, redone: Mapping[int, Receipt], num_missing: int = 0) -> Retried:
    # A shard without failed rows is one whose part is damaged: all of its rows go again.
    num_rows = sum(receipt.num_failed or receipt.num_rows for receipt in redone.values())
    return Retried(plan.job_id, num_rows, len(redone), num_missing)
