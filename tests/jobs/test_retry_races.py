"""Races with a retry: whoever freezes at whichever step, and wakes when a newer generation is made or being made."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from jobs.plan.planning import save_plan
from jobs.retry import ask_again
from jobs.storage.commit import Step, no_step
from jobs.storage.durable import sha256_of
from jobs.storage.finish import commit_job, finished_manifest, read_manifest
from jobs.storage.generations import missing_shards
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipts
from schemas.plan import Plan
from schemas.receipt import Receipt
from tests.crashing import ASKING, STEPS
from tests.freezing import END, Freezing
from tests.storage import (
    by_key,
    check_finished,
    failed_outcome,
    outcomes_of,
    plan_of,
    prompts,
    run_attempt,
    spec_of,
    write_parquet,
)

pytestmark = pytest.mark.usefixtures("no_fsync")

NOT_HERE = ("rows_saved", "part_half_written")
FINISHING = STEPS[STEPS.index("parts_in_place") :]
ATTEMPT = [step for step in STEPS[: STEPS.index("part_in_place") + 1] if step not in NOT_HERE]
ROWS = 3

New = Callable[[], tuple[Layout, Plan]]


@pytest.fixture
def new(tmp_path: Path) -> New:
    """Makes fresh jobs of one shard."""
    plan = plan_of(spec_of(write_parquet(tmp_path / "in.parquet", prompts(ROWS)), tmp_path / "out"))
    numbers = itertools.count()

    def make() -> tuple[Layout, Plan]:
        layout = Layout(tmp_path / f"out{next(numbers)}")
        save_plan(layout, plan)
        return layout, plan

    return make


def attempt(layout: Layout, plan: Plan, num_failed: int, step: Step = no_step) -> Receipt:
    """Does the shard; of its rows the first num_failed fail, so parts of generations differ."""
    outcomes = outcomes_of(plan.shards[0]) | by_key(failed_outcome(row) for row in range(num_failed))
    return run_attempt(layout, plan, plan.shards[0], step, outcomes)


def finish(layout: Layout, plan: Plan, num_failed: int, step: Step = no_step) -> None:
    attempt(layout, plan, num_failed, step)
    assert commit_job(layout, plan, step) is not None


def retry(layout: Layout, plan: Plan, num_failed: int) -> None:
    assert ask_again(layout, plan)
    finish(layout, plan, num_failed)


def check(layout: Layout, plan: Plan, generation: int, num_failed: int) -> None:
    """Finished, with that generation in place, whoever looks."""
    manifest = read_manifest(layout)
    assert manifest is not None
    assert [(one.generation, one.num_failed) for one in manifest.receipts] == [(generation, num_failed)]
    assert sha256_of(layout.part_path(plan.shards[0])) == manifest.receipts[0].sha256
    check_finished(layout, plan, manifest)
    assert commit_job(layout, plan) == manifest


@pytest.mark.parametrize("stop", ATTEMPT)
@pytest.mark.parametrize("generation", [0, 1])
def test_an_attempt_that_wakes_after_a_whole_retry_changes_nothing(new: New, stop: str, generation: int) -> None:
    layout, plan = new()
    if generation:
        finish(layout, plan, num_failed=3)
        ask_again(layout, plan)
    frozen = Freezing(partial(attempt, layout, plan, 2))
    frozen.go_on(stop)
    finish(layout, plan, num_failed=2)
    retry(layout, plan, num_failed=1)
    frozen.go_on()
    check(layout, plan, generation + 1, num_failed=1)


@pytest.mark.parametrize("stop", FINISHING)
@pytest.mark.parametrize("is_alone", [False, True])
def test_a_finalizer_that_wakes_after_a_whole_retry_changes_nothing(new: New, stop: str, is_alone: bool) -> None:
    layout, plan = new()
    attempt(layout, plan, num_failed=2)
    frozen = Freezing(partial(commit_job, layout, plan))
    frozen.go_on(stop)
    if not is_alone:
        assert commit_job(layout, plan) is not None
    retry(layout, plan, num_failed=1)
    while frozen.last_step != END:  # wherever it may be killed
        frozen.go_on_once()
        assert finished_manifest(layout, plan, read_receipts(layout)) is not None
    check(layout, plan, 1, num_failed=1)


@pytest.mark.parametrize("stop", FINISHING)
def test_a_finalizer_that_wakes_during_a_retry_neither_ends_nor_harms_it(new: New, stop: str) -> None:
    for next_stop in (*ATTEMPT, *FINISHING):
        layout, plan = new()
        attempt(layout, plan, num_failed=2)
        frozen = Freezing(partial(commit_job, layout, plan))
        frozen.go_on(stop)
        ask_again(layout, plan)
        second = Freezing(partial(finish, layout, plan, 1))
        second.go_on(next_stop)
        is_missing = bool(missing_shards(layout, plan))
        frozen.go_on()
        assert not (is_missing and layout.success_path.exists()), next_stop
        second.go_on()
        check(layout, plan, 1, num_failed=1)


@pytest.mark.parametrize("stop", ASKING)
def test_a_retry_that_wakes_after_another_whole_retry_asks_for_nothing_more(new: New, stop: str) -> None:
    layout, plan = new()
    finish(layout, plan, num_failed=2)
    frozen = Freezing(partial(ask_again, layout, plan))
    frozen.go_on(stop)
    retry(layout, plan, num_failed=1)
    frozen.go_on()
    assert missing_shards(layout, plan) == []
    assert commit_job(layout, plan) is not None  # as the look at the job does that a retry ends with
    check(layout, plan, 1, num_failed=1)


def test_two_attempts_at_a_generation_make_one_commit_wherever_the_first_freezes(new: New) -> None:
    for stop, next_stop in itertools.product(ATTEMPT, ("fence_raised", "input_read", "receipt_published")):
        layout, plan = new()
        finish(layout, plan, num_failed=3)
        ask_again(layout, plan)
        first = Freezing(partial(attempt, layout, plan, 2))
        second = Freezing(partial(attempt, layout, plan, 1))
        first.go_on(stop)
        second.go_on(next_stop)
        first.go_on()
        second.go_on()
        results = [one.result for one in (first, second) if isinstance(one.result, Receipt)]
        assert results and all(receipt == read_receipts(layout)[0] for receipt in results)
        assert commit_job(layout, plan) is not None
        check(layout, plan, 1, num_failed=results[0].num_failed)
