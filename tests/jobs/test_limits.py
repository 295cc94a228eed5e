"""A job beyond its limits is given up early: its finished shards are kept, and it can be resumed with others."""

import time
from pathlib import Path

import pytest

from jobs.cli import jobctl
from jobs.control.limits import count_failed
from jobs.control.queue import Queue
from jobs.control.reconcile import reconcile_job
from jobs.control.state import ShardProgress, ShardStates
from jobs.control.status import JobStatus, exit_code_of, read_status
from jobs.control.store import LONGEST_LOOK_SECONDS, Store
from jobs.settings import Settings
from jobs.submit import submit
from schemas.job import JobSpec
from schemas.message import ShardMessage
from tests.jobs.working import run_queued
from tests.oracle import check_output
from tests.services import Server
from tests.toy import toy_spec

pytestmark = pytest.mark.services

BAD_ROWS = (0, 1, 2, 9)  # three in the first shard, one in the second


def spec_with(work: Path, **limits: object) -> JobSpec:
    """24 rows in three shards."""
    prompts = ["too long" if row in BAD_ROWS else f"prompt {row}" for row in range(24)]
    return toy_spec(work, 24, prompts, **limits)


class Bench:
    """A submitted job, and a look at it."""

    def __init__(self, spec: JobSpec, settings: Settings, store: Store, queue: Queue) -> None:
        self.spec, self.settings, self.store, self.queue = spec, settings, store, queue
        self.job_id = submit(spec, settings, store, queue)

    def run(self, *shards: int) -> None:
        run_queued(self.settings, self.store, self.queue, shards)

    def look(self) -> JobStatus:
        reconcile_job(self.job_id, self.settings, self.store, self.queue)
        return read_status(self.job_id, self.store)


@pytest.mark.parametrize(
    ("max_errors", "shards", "num_failed"),
    [("2", [0], 3), ("0", [1], 1), ("3", [0, 1], 4), ("12%", [0], 3), ("16.6%", [0, 1], 4)],
)
def test_a_job_with_too_many_failed_rows_is_given_up(
    max_errors: str,
    shards: list[int],
    num_failed: int,
    work: Path,
    broker: str,
    settings: Settings,
    store: Store,
    queue: Queue,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = Bench(spec_with(work, max_errors=max_errors), settings, store, queue)
    job.run(*shards)
    status = job.look()
    rows = "row" if num_failed == 1 else "rows"
    assert (status.state, status.failed_kind, status.num_shards_done) == ("failed", "errors", len(shards))
    assert status.message == (
        f"{num_failed} {rows} failed, more than --max-errors {max_errors}; finished shards are kept; "
        f"jobctl resume {job.spec.output} --max-errors …"
    )
    assert jobctl(["wait", job.job_id]) == 1
    assert status.message in capsys.readouterr().out
    assert store.open_jobs() == []


@pytest.mark.parametrize("max_errors", ["3", "12.5%", "100%"])
def test_as_many_failed_rows_as_may_be_stop_nothing(
    max_errors: str, work: Path, settings: Settings, store: Store, queue: Queue
) -> None:
    job = Bench(spec_with(work, max_errors=max_errors), settings, store, queue)
    job.run(0)
    assert job.look().state == "running"


def test_rows_of_a_shard_that_still_runs_count(work: Path, settings: Settings, store: Store, queue: Queue) -> None:
    job = Bench(spec_with(work, max_errors="3"), settings, store, queue)
    job.run(0)
    message, progress = ShardMessage(job_id=job.job_id, shard_index=2, delivery=1), ShardProgress(worker="w")
    store.take_lease(message, "owner", progress)
    assert job.look().state == "running"
    assert store.renew_lease(job.job_id, 2, "owner", progress.model_copy(update={"num_failed": 1})) == "held"
    assert job.look().failed_kind == "errors"
    assert store.renew_lease(job.job_id, 2, "owner", progress) == "failed"


def test_a_shard_counts_once_while_its_lease_outlives_its_receipt(
    work: Path, settings: Settings, store: Store, queue: Queue
) -> None:
    job = Bench(spec_with(work), settings, store, queue)
    job.run(0)
    record, progress = store.job(job.job_id), ShardProgress(worker="w", num_failed=3)
    assert count_failed(record, ShardStates(running={0: progress}), missing=[1, 2]) == 3
    assert count_failed(record, ShardStates(running={1: progress}), missing=[1, 2]) == 6
    # Its failed rows are being generated again.
    assert count_failed(record, ShardStates(), missing=[0, 1, 2]) == 0


def test_a_job_that_is_done_is_finished_whatever_failed(
    work: Path, settings: Settings, store: Store, queue: Queue
) -> None:
    job = Bench(spec_with(work, max_errors="0"), settings, store, queue)
    job.run(0, 1, 2)
    status = job.look()
    assert (status.state, exit_code_of(status)) == ("finished", 4)


@pytest.mark.parametrize("way", ["resume", "submit"])
def test_a_job_goes_on_with_other_limits(
    way: str, work: Path, broker: str, settings: Settings, store: Store, queue: Queue
) -> None:
    job = Bench(spec_with(work, max_errors="0"), settings, store, queue)
    job.run(0)
    assert job.look().state == "failed"
    if way == "resume":
        assert jobctl(["resume", "-q", "out", "--max-errors", "4"]) == 0
    else:
        assert submit(job.spec.model_copy(update={"max_errors": "4"}), settings, store, queue) == job.job_id
    assert read_status(job.job_id, store).max_errors == "4"
    job.run(1, 2)
    assert job.look().state == "finished"
    check_output(job.spec)


def test_resuming_without_another_limit_says_why_it_is_given_up_again(
    work: Path, broker: str, settings: Settings, store: Store, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Bench(spec_with(work, max_errors="0"), settings, store, queue)
    job.run(0)
    assert job.look().state == "failed"
    assert jobctl(["resume", "out"]) == 0
    assert "failed; output" in (said := capsys.readouterr().err)
    assert "3 rows failed, more than --max-errors 0" in said


def pass_time(server: Server, settings: Settings, job_id: str, seconds: float) -> None:
    """As if the last look lay so much longer ago."""
    with server.client() as client:
        client.hincrby(f"{settings.key_prefix}job:{job_id}:clock", "looked_at", -round(seconds * 1000))


def test_a_job_that_takes_too_long_is_given_up(
    work: Path, broker: str, settings: Settings, store: Store, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Bench(spec_with(work, timeout_seconds=0.3), settings, store, queue)
    assert job.look().state == "queued"
    time.sleep(0.35)
    status = job.look()
    assert (status.state, status.failed_kind) == ("failed", "timeout")
    assert status.message is not None
    assert status.message.startswith("it has taken longer than --timeout 0.3; finished shards are kept; jobctl resume ")
    assert jobctl(["wait", job.job_id]) == 6
    # From its resumption it has as long again.
    assert jobctl(["resume", "-q", "out", "--timeout", "60"]) == 0
    job.run(0, 1, 2)
    assert job.look().state == "finished"


def test_the_time_between_looks_adds_up(
    work: Path, settings: Settings, store: Store, queue: Queue, redis_server: Server
) -> None:
    job = Bench(spec_with(work, timeout_seconds=100), settings, store, queue)
    for seconds, state in ((50, "queued"), (45, "queued"), (10, "failed")):
        pass_time(redis_server, settings, job.job_id, seconds)
        assert job.look().state == state


def test_a_clock_that_is_set_costs_a_minute_at_most(
    work: Path, settings: Settings, store: Store, queue: Queue, redis_server: Server
) -> None:
    job = Bench(spec_with(work, timeout_seconds=LONGEST_LOOK_SECONDS + 30), settings, store, queue)
    for seconds in (86_400, -86_400, 0, 25):  # a day ahead, back again, and some time
        pass_time(redis_server, settings, job.job_id, seconds)
        assert job.look().state == "queued"
    pass_time(redis_server, settings, job.job_id, 10)
    assert job.look().failed_kind == "timeout"


def test_a_job_without_a_timeout_has_no_clock(
    work: Path, settings: Settings, store: Store, queue: Queue, redis_server: Server
) -> None:
    job = Bench(spec_with(work), settings, store, queue)
    job.look()
    with redis_server.client() as client:
        assert not client.exists(f"{settings.key_prefix}job:{job.job_id}:clock")


def test_a_job_that_is_reopened_has_its_time_again(
    work: Path, settings: Settings, store: Store, queue: Queue, redis_server: Server
) -> None:
    job = Bench(spec_with(work, timeout_seconds=10), settings, store, queue)
    pass_time(redis_server, settings, job.job_id, 11)
    assert job.look().failed_kind == "timeout"
    store.reopen_job(job.job_id)
    assert job.look().state == "queued"


def test_submitting_again_without_limits_takes_them_away(
    work: Path, settings: Settings, store: Store, queue: Queue
) -> None:
    limited = spec_with(work, max_errors="0", timeout_seconds=60)
    job = Bench(limited, settings, store, queue)
    assert (job.look().max_errors, job.look().timeout_seconds) == ("0", 60)
    free = limited.model_copy(update={"max_errors": None, "timeout_seconds": None})
    assert submit(free, settings, store, queue) == job.job_id
    assert (job.look().max_errors, job.look().timeout_seconds) == (None, None)
