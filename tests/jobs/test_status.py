"""How a job stands, computed from receipts and the store."""

from pathlib import Path
from typing import Any

import pytest

from jobs.control.state import JobRecord, ShardProgress, ShardStates
from jobs.control.status import JobStatus, exit_code_of, make_status, read_status_of
from jobs.plan.planning import save_plan
from jobs.storage.layout import Layout
from jobs.submit import plan_job
from schemas.errors import NotFound
from schemas.plan import Plan
from schemas.receipt import Receipt, ShardStatistics
from tests.toy import toy_spec


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """24 rows in three shards, saved, nothing done."""
    plan = plan_job(toy_spec(tmp_path, 24))
    return save_plan(Layout(Path(plan.spec.output)), plan)


def status(plan: Plan, states: ShardStates | None = None, **facts: str) -> JobStatus:
    return make_status(plan, JobRecord.of(plan).model_copy(update=facts), states or ShardStates())


def commit(
    plan: Plan,
    shard: int,
    num_failed: int = 0,
    more_samples: int = 0,
    speculation: dict[str, Any] | None = None,
    **statistics: float,
) -> None:
    """A receipt as a worker leaves it; status looks at nothing else."""
    layout, rows = Layout(Path(plan.spec.output)), plan.shards[shard]
    receipt = Receipt(
        job_id=plan.job_id,
        shard_index=shard,
        attempt=1,
        staged="x.parquet",
        part=layout.part_name(rows),
        first_row=rows.first_row,
        num_rows=rows.num_rows,
        num_samples=rows.num_rows + more_samples,
        num_ok=rows.num_rows + more_samples - num_failed,
        num_failed=num_failed,
        size_bytes=1,
        sha256="0",
        worker="w1",
        committed_at=f"2030-01-01T00:00:{10 * (shard + 1):02d}+00:00",
        statistics=ShardStatistics.model_validate(statistics),
        speculation=speculation,
    )
    layout.receipt_path(shard).write_text(receipt.to_json())


def test_the_states_in_the_order_that_they_outrank_each_other(plan: Plan) -> None:
    assert status(plan).state == "queued"
    assert status(plan, ShardStates(deliveries={0: 1})).state == "queued"
    assert status(plan, ShardStates(taken={0: 1})).state == "running"
    assert status(plan, ended="incomplete").state == "incomplete"
    assert status(plan, ended="incomplete", cancelled_at="t").state == "cancelled"
    assert status(plan, ended="incomplete", cancelled_at="t", failed="why").state == "failed"


@pytest.mark.parametrize(
    ("state", "num_failed", "code"),
    [
        ("queued", 0, 0),
        ("running", 3, 0),
        ("finished", 0, 0),
        ("finished", 3, 4),
        ("incomplete", 3, 1),
        ("failed", 0, 2),
        ("cancelled", 3, 5),
    ],
)
def test_exit_codes(plan: Plan, state: str, num_failed: int, code: int) -> None:
    assert exit_code_of(status(plan).model_copy(update={"state": state, "num_failed": num_failed})) == code


def test_rows_are_counted_once_however_they_stand(plan: Plan) -> None:
    commit(plan, 0, num_failed=2)
    progress = ShardProgress(worker="w2", attempt=1, num_rows=8, num_rows_done=3, num_tokens=30, seconds=2)
    # Shard 0 is committed though its lease is not given back yet.
    found = status(plan, ShardStates(running={0: progress, 1: progress}))
    assert (found.num_ok, found.num_failed, found.num_rows_done) == (6, 2, 8)
    assert (found.num_rows_running, found.num_rows_generated) == (8, 3)
    assert (found.num_shards_done, found.num_shards_running, found.workers) == (1, 1, ("w2",))
    assert found.missing_rows == ()


def test_rows_are_counted_beside_their_samples(plan: Plan) -> None:
    commit(plan, 0, num_failed=2, more_samples=10)
    found = status(plan)
    assert (found.num_rows_done, found.num_samples, found.num_ok, found.num_failed) == (8, 18, 16, 2)


def test_speculation_is_the_newest_shards_with_the_rounds_of_all(plan: Plan) -> None:
    assert status(plan).speculation is None
    commit(plan, 2, speculation={"acceptance": 0.5, "rounds_by_k": {"ngram": {"0": 1, "4": 2}}})
    commit(plan, 0, speculation={"acceptance": 0.7, "rounds_by_k": {"ngram": {"4": 3}, "suffix": {"8": 4}}})
    commit(plan, 1)
    expected = {"acceptance": 0.5, "rounds_by_k": {"ngram": {"0": 1, "4": 5}, "suffix": {"8": 4}}}
    assert status(plan).speculation == expected


def test_rates_of_running_workers_add_up(plan: Plan) -> None:
    commit(plan, 0, num_completion_tokens=100, num_draft_tokens=40, num_accepted_draft_tokens=20, num_spec_steps=10)
    running = {
        1: ShardProgress(worker="a", num_tokens=30, seconds=2, num_draft_tokens=10, num_accepted_draft_tokens=5),
        2: ShardProgress(worker="b", num_tokens=10, seconds=1, num_spec_steps=2),
    }
    found = status(plan, ShardStates(running=running))
    assert (found.tokens_per_second, found.num_completion_tokens) == (25.0, 140)
    assert (found.draft_acceptance_rate, found.mean_acceptance_length) == (25 / 50, 1 + 25 / 12)


def test_a_worker_that_has_not_heard_of_the_end_does_not_make_the_rate(plan: Plan) -> None:
    commit(plan, 0, num_completion_tokens=100, generate_seconds=10)
    states = ShardStates(running={1: ShardProgress(worker="w", seconds=1)})
    assert status(plan, states).tokens_per_second == 0
    assert status(plan, states, cancelled_at="t").tokens_per_second == 10


@pytest.mark.parametrize(("kind", "code"), [("errors", 1), ("timeout", 6), ("refused", 2), (None, 2)])
def test_the_exit_code_of_a_failed_job_is_that_of_what_it_failed_of(plan: Plan, kind: str | None, code: int) -> None:
    facts = {"failed": "why", **({"failed_kind": kind} if kind else {})}
    assert exit_code_of(status(plan, **facts)) == code


def test_the_rate_of_a_job_at_rest_is_over_the_time_it_was_worked_on(plan: Plan) -> None:
    assert status(plan).tokens_per_second is None
    commit(plan, 0, num_completion_tokens=100, generate_seconds=5, load_seconds=4, commit_seconds=1)  # 00:00 - 00:10
    commit(plan, 2, num_completion_tokens=20, generate_seconds=6)  # 00:24 - 00:30
    assert status(plan, ended="incomplete").tokens_per_second == 120 / 30


def test_without_drafts_there_is_no_acceptance(plan: Plan) -> None:
    commit(plan, 0, num_completion_tokens=100)
    found = status(plan)
    assert (found.draft_acceptance_rate, found.mean_acceptance_length) == (None, None)


def test_a_job_that_ended_early_says_which_rows_are_missing(plan: Plan) -> None:
    commit(plan, 1)
    found = status(plan, ShardStates(dead={0: "out of memory", 2: "lost"}), ended="incomplete")
    assert [(one.first_row, one.end_row) for one in found.missing_rows] == [(0, 8), (16, 24)]
    assert (found.num_shards_dead, found.message) == (2, "shard 0: out of memory")


def test_a_directory_without_a_job_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_status_of(tmp_path)
