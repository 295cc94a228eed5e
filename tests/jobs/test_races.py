"""Races: two attempts at one shard, interleaved in every way at their steps, and for real in two processes."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.plan.planning import load_plan, save_plan
from jobs.storage.commit import begin_attempt, commit_shard, new_staged_path, prepare_shard
from jobs.storage.durable import sha256_of
from jobs.storage.finish import commit_job
from jobs.storage.layout import Layout
from jobs.storage.receipts import committed_shards, read_receipts
from schemas.plan import Plan, ShardPlan
from schemas.receipt import Receipt
from tests.freezing import END, Freezing
from tests.storage import check_finished, leftovers, plan_of, prompts, receipt_of, spec_of, write_parquet
from workers.writer import PartFacts

STEPS = (
    "attempt_begun",
    "fence_raised",
    "temp_receipts_removed",
    "receipts_looked_for",
    "staged_removed",
    "part_staged",
    "part_durable",
    "temp_receipt_written",
    "fences_looked_for",
    "receipt_published",
    "receipt_durable",
    "temp_receipt_removed",
    "part_in_place",
)

pytestmark = pytest.mark.usefixtures("no_fsync")


class Attempt(Freezing):
    """An attempt that stops at its steps and goes on when it is told to."""

    def __init__(self, layout: Layout, plan: Plan) -> None:
        super().__init__(lambda step: self.attempt(plan.shards[0]))
        self.layout, self.plan = layout, plan

    def attempt(self, shard: ShardPlan) -> Receipt:
        """As the worker does it; the commit does not look into the part, so any bytes are one."""
        attempt = begin_attempt(self.layout, 0, self.step)
        receipt = prepare_shard(self.layout, shard, attempt, self.step)
        if receipt is not None:
            return receipt
        staged = new_staged_path(self.layout, shard, attempt)
        staged.write_bytes(staged.name.encode())
        facts = PartFacts(shard.num_rows, shard.num_rows, shard.num_rows, 0, staged.stat().st_size, sha256_of(staged))
        self.step("part_staged")
        receipt = receipt_of(self.layout, self.plan, shard, attempt, staged, facts)
        return commit_shard(self.layout, self.plan, shard, receipt, staged, self.step)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return plan_of(spec_of(write_parquet(tmp_path / "in.parquet", prompts(3)), tmp_path / "out"))


def check_one_commit(layout: Layout, plan: Plan, *attempts: Attempt) -> None:
    """Whoever has reported success has reported the one receipt, and its part is there."""
    receipts = [attempt.result for attempt in attempts if isinstance(attempt.result, Receipt)]
    assert receipts
    assert read_receipts(layout) == {0: receipts[0]}
    assert all(receipt == receipts[0] for receipt in receipts)
    assert sha256_of(layout.part_path(plan.shards[0])) == receipts[0].sha256
    assert commit_job(layout, plan) is not None
    assert leftovers(layout) == []


@pytest.mark.parametrize("first_stop", STEPS)
def test_two_attempts_make_one_commit_wherever_they_freeze_and_wake(
    tmp_path: Path, plan: Plan, first_stop: str
) -> None:
    """The first freezes, the second freezes, the first goes on and freezes again, the second ends, the first ends."""
    later_stops = (*STEPS[STEPS.index(first_stop) :], END)
    for number, (second_stop, next_stop) in enumerate(itertools.product(STEPS, later_stops)):
        layout = Layout(tmp_path / f"out{number}")
        save_plan(layout, plan)
        first, second = Attempt(layout, plan), Attempt(layout, plan)
        first.go_on(first_stop)
        second.go_on(second_stop)
        first.go_on(next_stop)
        second.go_on()
        first.go_on()
        check_one_commit(layout, plan, first, second)


def test_a_second_and_a_third_attempt_make_one_commit_with_a_frozen_first(tmp_path: Path, plan: Plan) -> None:
    for number, (first_stop, second_stop) in enumerate(itertools.product(STEPS, STEPS)):
        layout = Layout(tmp_path / f"out{number}")
        save_plan(layout, plan)
        first, second, third = (Attempt(layout, plan) for _ in range(3))
        first.go_on(first_stop)
        second.go_on(second_stop)
        third.go_on()
        first.go_on()
        second.go_on()
        check_one_commit(layout, plan, first, second, third)


RACER = """
import sys
from pathlib import Path
from jobs.storage.layout import Layout
from jobs.plan.planning import load_plan
from schemas.errors import CommitConflict, ShardRetryable
from tests.crashing import run_job
layout = Layout(Path(sys.argv[1]))
plan = load_plan(layout.output)
print("ready", flush=True)
sys.stdin.readline()
try:
    run_job(layout, plan, lambda name: None)
except (CommitConflict, ShardRetryable) as error:  # one that is overtaken gives up; never the last one
    print(type(error).__name__)
"""


def test_processes_that_race_for_every_shard_make_each_row_once(tmp_path: Path) -> None:
    spec = spec_of(write_parquet(tmp_path / "in.parquet", prompts(40)), tmp_path / "out", shard_rows=2)
    layout = Layout(tmp_path / "out")
    plan = save_plan(layout, plan_of(spec))
    command = [sys.executable, "-c", RACER, str(layout.output)]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        _, errors = racer.communicate(timeout=60)
        assert (racer.returncode, errors) == (0, "")
    check_finished(layout, load_plan(layout.output), commit_job(layout, plan))
    assert committed_shards(layout) == set(range(20))
