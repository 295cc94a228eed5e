"""Crashes: a process is killed with SIGKILL after each step of its work, and the next one finishes the job."""

import signal
from pathlib import Path

import pytest

from jobs.plan.planning import load_plan, save_plan
from jobs.storage.finish import commit_job
from jobs.storage.layout import Layout
from jobs.storage.receipts import committed_shards
from schemas.plan import Plan
from tests.crashing import ASKING, STEPS, exit_code_of, retry_job, run_job
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

SHARD_IS_COMMITTED_FROM = STEPS.index("receipt_published")


@pytest.fixture
def job(tmp_path: Path) -> tuple[Layout, Plan]:
    for day in ("01", "02"):
        write_parquet(tmp_path / "in" / f"day={day}" / "x.parquet", prompts(3))
    layout = Layout(tmp_path / "out")
    return layout, save_plan(layout, plan_of(spec_of(tmp_path / "in", layout.output, n=2)))


@pytest.mark.parametrize("step", STEPS)
def test_a_job_killed_after_any_step_is_finished_by_the_next_process(job: tuple[Layout, Plan], step: str) -> None:
    layout, plan = job
    assert exit_code_of(run_job, layout, step) == -signal.SIGKILL
    is_committed = STEPS.index(step) >= SHARD_IS_COMMITTED_FROM
    assert (0 in committed_shards(layout)) == is_committed
    for _ in range(2):  # once more changes nothing
        run_job(layout, load_plan(layout.output), lambda name: None)
        check_finished(layout, plan, commit_job(layout, plan))


def test_every_step_has_its_crash(job: tuple[Layout, Plan]) -> None:
    seen: list[str] = []
    run_job(*job, seen.append)
    assert set(STEPS) == {*seen, "part_half_written"}


def test_a_job_killed_again_and_again_is_finished(job: tuple[Layout, Plan]) -> None:
    layout, plan = job
    for step in ("temp_receipt_written", "part_half_written", "receipt_published", "part_staged", "leftovers_removed"):
        assert exit_code_of(run_job, layout, step) == -signal.SIGKILL
    assert exit_code_of(run_job, layout, "no step") == 0
    check_finished(layout, plan, commit_job(layout, plan))


@pytest.fixture
def with_failures(job: tuple[Layout, Plan]) -> tuple[Layout, Plan]:
    """The job is finished, and the first row of each shard has failed."""
    layout, plan = job
    for shard in plan.shards:
        failed = by_key([failed_outcome(shard.first_row)])
        outcomes = {key: one for key, one in outcomes_of(shard, plan.spec.n).items() if (key[0], 0) not in failed}
        run_attempt(layout, plan, shard, outcomes=outcomes | failed)
    commit_job(layout, plan)
    return job


@pytest.mark.parametrize("step", [*ASKING, *STEPS])
def test_a_retry_killed_after_any_step_is_finished_by_the_next(with_failures: tuple[Layout, Plan], step: str) -> None:
    layout, plan = with_failures
    assert exit_code_of(retry_job, layout, step) == -signal.SIGKILL
    for _ in range(2):  # once more changes nothing
        retry_job(layout, plan, lambda name: None)
        manifest = commit_job(layout, plan)
        check_finished(layout, plan, manifest)
        assert manifest is not None and manifest.num_failed == 0
        assert [receipt.generation for receipt in manifest.receipts] == [1] * len(plan.shards)
