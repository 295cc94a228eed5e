"""A job done by a process of its own that kills itself, with SIGKILL, right after a step of a given name.

python -m tests.crashing OUTPUT STEP: runs every shard of the saved job and finishes it.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

import workers.writer
from jobs.plan.planning import load_plan
from jobs.storage.checkpoint import append_rows, clear
from jobs.storage.commit import Step
from jobs.storage.finish import commit_job
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
    "manifest_published",
    "success_published",
)


def run_job(layout: Layout, plan: Plan, step: Step) -> None:
    for shard in plan.shards:
        append_rows(layout, shard, 1, list(outcomes_of(shard, plan.spec.n).values())[:1])
        step("rows_saved")
        run_attempt(layout, plan, shard, step)
        clear(layout, shard)
        step("rows_cleared")
    commit_job(layout, plan, step)


def kill_after(last: str) -> Step:
    def step(name: str) -> None:
        if name == last:
            os.kill(os.getpid(), signal.SIGKILL)

    return step


def main(output: str, last: str) -> None:
    layout, step = Layout(Path(output)), kill_after(last)
    check_part = workers.writer.check_part

    def half_written(path: Path, table: pa.Table, keys: Sequence[str]) -> None:
        step("part_half_written")
        check_part(path, table, keys)

    with patch.object(workers.writer, "check_part", half_written):
        run_job(layout, load_plan(layout.output), step)


if __name__ == "__main__":
    main(*sys.argv[1:])
