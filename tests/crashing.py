"""A job done by a process of its own that kills itself, with SIGKILL, right after a step of a given name."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

import workers.writer
from jobs.plan.planning import load_plan
from jobs.retry import ask_again
from jobs.storage.checkpoint import append_rows, clear
from jobs.storage.commit import Step
from jobs.storage.finish import commit_job
from jobs.storage.generations import wanted_generation
from jobs.storage.layout import Layout
from schemas.plan import Plan
from tests.storage import outcomes_of, run_attempt

STEPS = (
    "rows_saved",
    "attempt_begun",
    "fence_raised",
    "temp_receipts_removed",
    "receipts_looked_for",
    "staged_removed",
    "input_read",
    "part_half_written",
    "part_staged",
    "part_durable",
    "temp_receipt_written",
    "fences_looked_for",
    "receipt_published",
    "receipt_durable",
    "temp_receipt_removed",
    "part_in_place",
    "rows_cleared",
    "parts_in_place",
    "leftovers_removed",
    "manifest_aside",
    "manifest_looked_at",
    "manifest_published",
    "success_aside",
    "success_looked_at",
    "success_published",
)


ASKING = ("failures_read", "marked", "success_withdrawn")
PATIENCE_SECONDS = 60
# Forked from a process that has imported all this and has no threads yet.
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["tests.crashing"])

Work = Callable[[Layout, Plan, Step], None]


def run_job(layout: Layout, plan: Plan, step: Step) -> None:
    """Every shard of the saved job, and its end."""
    for shard in plan.shards:
        generation = wanted_generation(layout, shard.shard_index)
        outcomes = outcomes_of(shard, plan.spec.n)
        append_rows(layout, shard, 1, list(outcomes.values())[:1], generation)
        step("rows_saved")
        run_attempt(layout, plan, shard, step)
        clear(layout, shard, generation)
        step("rows_cleared")
    commit_job(layout, plan, step)


def retry_job(layout: Layout, plan: Plan, step: Step) -> None:
    """The failed rows of the finished job once more."""
    ask_again(layout, plan, step)
    run_job(layout, plan, step)


def exit_code_of(work: Work, layout: Layout, last: str) -> int:
    """Of a process that does the work and dies after a step."""
    process = FORKING.Process(target=_work, args=(work, layout, last))
    process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode is not None
    return process.exitcode


def kill_after(last: str) -> Step:
    def step(name: str) -> None:
        if name == last:
            os.kill(os.getpid(), signal.SIGKILL)

    return step


def _work(work: Work, layout: Layout, last: str) -> None:
    step = kill_after(last)
    check_part = workers.writer.check_part

    def half_written(path: Path, table: pa.Table, keys: Sequence[str]) -> None:
        step("part_half_written")
        check_part(path, table, keys)

    with patch.object(workers.writer, "check_part", half_written), patch.object(os, "fsync", lambda descriptor: None):
        work(layout, load_plan(layout.output), step)
