"""jobctl retry: failed rows are generated again into the same output, however often it is asked or killed."""

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from jobs.cli import jobctl
from jobs.control.queue import Queue
from jobs.control.reconcile import reconcile_job
from jobs.control.state import ShardProgress
from jobs.control.status import JobStatus, read_status, read_status_of
from jobs.control.store import Store
from jobs.plan.planning import load_plan
from jobs.resume import resume
from jobs.retry import Retried, retry
from jobs.settings import Settings
from jobs.storage.finish import commit_job, read_manifest
from jobs.storage.generations import wanted_generations
from jobs.storage.layout import Layout
from jobs.storage.receipts import newest_generations
from jobs.storage.verify import Verification
from jobs.submit import submit
from schemas.errors import InvalidJob
from schemas.job import JobSpec
from schemas.message import ShardMessage
from tests.jobs.cli import only_line
from tests.jobs.working import run_queued
from tests.oracle import check_output
from tests.services import Server
from tests.toy import toy_spec

pytestmark = pytest.mark.services

FAILING = (1, 17, 19)  # rows of shards 0 and 2


@pytest.fixture
def job(work: Path, broker: str, settings: Settings, store: Store, queue: Queue) -> str:
    """A finished job of three shards in `out`, in which some rows have failed."""
    job_id = submit(toy_spec(work, 24), settings, store, queue)
    run_queued(settings, store, queue, failing=FAILING)
    assert read_status(job_id, store).state == "finished"
    return job_id


def spec_of(job_id: str, store: Store) -> JobSpec:
    return load_plan(Path(store.job(job_id).output)).spec


def check_done(job_id: str, store: Store, generations: dict[int, int]) -> JobStatus:
    status = read_status(job_id, store)
    assert (status.state, store.job(job_id).ended) == ("finished", "finished")
    check_output(spec_of(job_id, store))
    assert list(Verification(Layout(Path(status.output)), load_plan(Path(status.output))).problems()) == []
    assert newest_generations(Layout(Path(status.output))) == generations
    return status


def test_failed_rows_and_no_others_are_generated_again(
    job: str, settings: Settings, store: Store, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    untouched = Path("out/part-00001.parquet").stat().st_ino
    assert jobctl(["retry", job]) == 0
    said = capsys.readouterr()
    assert said.out == f"{job}\n"
    assert said.err.startswith("jobctl: 3 rows in 2 shards to do again\n")
    assert run_queued(settings, store, queue) == list(FAILING)
    status = check_done(job, store, {0: 1, 1: 0, 2: 1})
    assert (status.num_ok, status.num_failed, status.num_rows_done) == (24, 0, 24)
    assert Path("out/part-00001.parquet").stat().st_ino == untouched


def test_a_job_that_is_retried_is_not_finished_and_counts_what_is_there(
    job: str, settings: Settings, store: Store, queue: Queue
) -> None:
    retry(Path("out"), settings, store, queue)
    during = read_status(job, store)
    assert (during.state, during.finished_at, during.num_shards_done) == ("running", None, 1)
    assert (during.num_ok, during.num_failed, during.num_rows_done) == (21, 3, 21)
    assert read_status_of(Path("out")).state == "incomplete"
    assert not Path("out/_SUCCESS").exists()
    assert read_manifest(Layout(Path("out"))) is not None
    run_queued(settings, store, queue, shards=[0])
    during = read_status(job, store)
    assert (during.state, during.num_shards_done, during.num_ok, during.num_rows_done) == ("running", 2, 22, 22)


def test_asking_twice_makes_no_second_generation(
    job: str, settings: Settings, store: Store, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        assert jobctl(["retry", "out", "-q"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == (f"{job}\n" * 3, "")
    assert wanted_generations(Layout(Path("out"))) == {0: 1, 2: 1}
    assert run_queued(settings, store, queue) == list(FAILING)
    check_done(job, store, {0: 1, 1: 0, 2: 1})


def test_rows_that_fail_again_make_another_generation(job: str, settings: Settings, store: Store, queue: Queue) -> None:
    retry(Path("out"), settings, store, queue)
    run_queued(settings, store, queue, failing=[17])
    assert check_done(job, store, {0: 1, 1: 0, 2: 1}).num_failed == 1
    assert retry(Path("out"), settings, store, queue) == Retried(job, num_rows=1, num_shards=1)
    assert run_queued(settings, store, queue) == [17]
    check_done(job, store, {0: 1, 1: 0, 2: 2})


def test_a_job_without_failed_rows_has_nothing_to_do_again(
    job: str, settings: Settings, store: Store, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    retry(Path("out"), settings, store, queue)
    run_queued(settings, store, queue)
    assert jobctl(["retry", "out"]) == 0
    assert capsys.readouterr().err == "jobctl: nothing to do again, no row has failed and no part is damaged\n"
    check_done(job, store, {0: 1, 1: 0, 2: 1})


def test_a_job_that_runs_is_refused(
    work: Path, broker: str, settings: Settings, store: Store, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    job_id = submit(toy_spec(work, 24), settings, store, queue)
    for shards in ([], [0]):
        run_queued(settings, store, queue, shards, failing=FAILING)
        assert jobctl(["retry", "out"]) == InvalidJob.exit_code
        assert only_line(capsys) == f"jobctl: {job_id} is running; `jobctl wait` for it or `jobctl cancel` it first"
    assert wanted_generations(Layout(Path("out"))) == {}


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("last", ["failures_read", "marked", "success_withdrawn", "registered", "reopened"])
@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_retry_killed_after_any_step_is_finished_by_the_next(
    job: str, last: str, is_forgotten: bool, redis_server: Server, settings: Settings, store: Store, queue: Queue
) -> None:
    if is_forgotten:
        redis_server.flush()

    def step(name: str) -> None:
        if name == last:
            raise Killed

    with pytest.raises(Killed):
        retry(Path("out"), settings, store, queue, step=step)
    assert retry(Path("out"), settings, store, queue) == Retried(job, num_rows=3, num_shards=2)
    assert run_queued(settings, store, queue) == list(FAILING)
    check_done(job, store, {0: 1, 1: 0, 2: 1})


@pytest.mark.parametrize("goes_on", [resume, retry])
def test_a_retry_that_was_cancelled_goes_on(
    job: str, settings: Settings, store: Store, queue: Queue, goes_on: Callable[..., object]
) -> None:
    retry(Path("out"), settings, store, queue)
    run_queued(settings, store, queue, shards=[0])
    store.cancel_job(job)
    assert read_status(job, store).state == "cancelled"
    goes_on(Path("out"), settings, store, queue)
    assert run_queued(settings, store, queue) == [17, 19]
    check_done(job, store, {0: 1, 1: 0, 2: 1})


def test_a_directory_that_was_moved_is_retried_where_it_is(
    job: str, work: Path, redis_server: Server, settings: Settings, store: Store, queue: Queue
) -> None:
    redis_server.flush()
    shutil.move("out", "elsewhere")
    assert jobctl(["retry", "elsewhere", "-q"]) == 0
    assert run_queued(settings, store, queue) == list(FAILING)
    status = read_status(job, store)
    assert (status.state, status.output, status.num_failed) == ("finished", str(work / "elsewhere"), 0)


def test_a_changed_input_is_refused_before_anything_is_asked_for(
    job: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy_spec(work, 23)
    assert jobctl(["retry", "out"]) == InvalidJob.exit_code
    assert "in.parquet" in only_line(capsys)
    assert wanted_generations(Layout(Path("out"))) == {}
    assert read_status_of(Path("out")).state == "finished"


class TestDeadShards:
    @pytest.fixture
    def incomplete(self, work: Path, broker: str, settings: Settings, store: Store, queue: Queue) -> str:
        """Shard 1 is dead, and rows of the others have failed."""
        job_id = submit(toy_spec(work, 24), settings, store, queue)
        run_queued(settings, store, queue, shards=[0, 2], failing=FAILING)
        kill(job_id, 1, store, settings)
        reconcile_job(job_id, settings, store, queue)
        assert read_status(job_id, store).state == "incomplete"
        return job_id

    def test_they_get_new_attempts_too(self, incomplete: str, settings: Settings, store: Store, queue: Queue) -> None:
        assert retry(Path("out"), settings, store, queue) == Retried(incomplete, 3, 2, num_missing=1)
        assert store.shard_states(incomplete).dead == {}
        assert queued(incomplete, store, queue) == {0, 1, 2}

    def test_they_stay_dead_with_failed_only(
        self, incomplete: str, settings: Settings, store: Store, queue: Queue
    ) -> None:
        assert retry(Path("out"), settings, store, queue, failed_only=True) == Retried(incomplete, 3, 2)
        assert set(store.shard_states(incomplete).dead) == {1}
        assert queued(incomplete, store, queue) == {0, 2}
        assert run_queued(settings, store, queue) == list(FAILING)
        reconcile_job(incomplete, settings, store, queue)
        status = read_status(incomplete, store)
        assert (status.state, status.num_ok, status.num_failed) == ("incomplete", 16, 0)
        assert [(rows.first_row, rows.end_row) for rows in status.missing_rows] == [(8, 16)]

    def test_a_retry_that_died_gets_new_attempts_with_failed_only(
        self, incomplete: str, settings: Settings, store: Store, queue: Queue
    ) -> None:
        retry(Path("out"), settings, store, queue, failed_only=True)
        run_queued(settings, store, queue, shards=[0])
        kill(incomplete, 2, store, settings)
        reconcile_job(incomplete, settings, store, queue)
        assert read_status(incomplete, store).state == "incomplete"
        assert retry(Path("out"), settings, store, queue, failed_only=True) == Retried(incomplete, 2, 1)
        assert set(store.shard_states(incomplete).dead) == {1}
        assert run_queued(settings, store, queue) == [17, 19]


def kill(job_id: str, shard: int, store: Store, settings: Settings) -> None:
    """The last attempt at the shard fails."""
    newest = store.shard_states(job_id).deliveries[shard]
    impatient = Store(settings.model_copy(update={"max_attempts": 1}), settings.redis_url or "")
    with closing(impatient):
        message = ShardMessage(job_id=job_id, shard_index=shard, delivery=newest)
        assert impatient.take_lease(message, "w", ShardProgress(worker="w")) == "taken"
        impatient.release_lease(job_id, shard, "w", "failed", "out of luck")
    assert shard in store.shard_states(job_id).dead


def queued(job_id: str, store: Store, queue: Queue) -> set[int]:
    newest, taken = store.shard_states(job_id).deliveries, store.shard_states(job_id).taken
    live = {one.shard_index for one in queue.live_deliveries() if one.delivery == newest[one.shard_index]}
    return {shard for shard in live if newest[shard] > taken.get(shard, 0)}


class TestWhatWasSeenBeforeTheRetry:
    def test_an_end_that_is_told_late_does_not_end_the_retry(
        self, job: str, settings: Settings, store: Store, queue: Queue
    ) -> None:
        before = store.job(job)
        retry(Path("out"), settings, store, queue)
        assert not store.end_job(job, "finished", before.num_reopened)
        assert (job in store.open_jobs(), store.job(job).ended) == (True, None)
        run_queued(settings, store, queue)
        check_done(job, store, {0: 1, 1: 0, 2: 1})

    def test_an_old_manifest_is_not_the_end_and_is_replaced(
        self, job: str, settings: Settings, store: Store, queue: Queue
    ) -> None:
        old = Path("out/_manifest.json").read_bytes()
        retry(Path("out"), settings, store, queue)
        run_queued(settings, store, queue)
        new = Path("out/_manifest.json").read_bytes()
        Path("out/_manifest.json").write_bytes(old)
        assert read_status(job, store).state == "incomplete"
        assert commit_job(Layout(Path("out")), load_plan(Path("out"))) is not None
        assert Path("out/_manifest.json").read_bytes() == new
        Path("out/_manifest.json").write_bytes(old)
        assert resume(Path("out"), settings, store, queue) == job
        check_done(job, store, {0: 1, 1: 0, 2: 1})
