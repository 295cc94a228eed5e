"""Verbs on a job: reconcile, cancel, list and status say what they did, and say it alike."""

import json
import shutil
from pathlib import Path

import pytest

from jobs.cli import jobctl
from jobs.control.queue import Queue
from jobs.control.store import Store
from jobs.settings import Settings
from jobs.submit import submit
from jobs.texts import counted
from schemas.job import JobSpec
from schemas.message import ShardMessage
from tests.jobs.cli import only_line
from tests.jobs.working import run_queued
from tests.oracle import check_output
from tests.toy import load_session, toy_spec
from workers.context import WorkerContext, WorkerOptions
from workers.shard import run_shard

pytestmark = pytest.mark.services


@pytest.fixture
def spec(work: Path, broker: str) -> JobSpec:
    return toy_spec(work, 24)


@pytest.fixture
def job(spec: JobSpec, settings: Settings, store: Store, queue: Queue) -> str:
    return submit(spec, settings, store, queue)


def lose_messages(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a broker that was restarted without its file; and so long ago that no grace is left."""
    with queue.app.connection_for_read() as connection:
        while connection.default_channel.basic_get("shards.auto", no_ack=True):
            pass
    monkeypatch.setenv("JOBCTL_GRACE_SECONDS", "0.001")


class TestReconcile:
    def test_it_enqueues_what_is_missing_once(
        self, job: str, queue: Queue, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert jobctl(["reconcile", job]) == 0
        assert only_line(capsys) == f"jobctl: {job}: nothing to do, it is queued"
        lose_messages(queue, monkeypatch)
        assert jobctl(["reconcile", "out"]) == 0
        assert only_line(capsys) == f"jobctl: {job}: 3 shards enqueued"
        assert sorted(live.shard_index for live in queue.live_deliveries()) == [0, 1, 2]
        assert jobctl(["reconcile", job]) == 0
        assert only_line(capsys) == f"jobctl: {job}: nothing to do, it is queued"
        assert len(queue.live_deliveries()) == 3

    def test_it_finishes_a_job_that_nobody_finished(
        self,
        job: str,
        spec: JobSpec,
        settings: Settings,
        store: Store,
        queue: Queue,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr("workers.shard.finish_job", lambda *_: None)
        context = WorkerContext(settings, store, WorkerOptions(name="w1", device="cpu"), load_session)
        for shard in range(3):
            run_shard(ShardMessage(job_id=job, shard_index=shard, delivery=1), context)
        assert jobctl(["reconcile", job]) == 0
        assert only_line(capsys) == f"jobctl: {job}: it is finished now"
        check_output(spec)
        assert jobctl(["reconcile", job]) == 0
        assert only_line(capsys) == f"jobctl: {job}: nothing to do, it is finished"

    def test_it_says_that_a_job_is_given_up(
        self,
        work: Path,
        spec: JobSpec,
        settings: Settings,
        store: Store,
        queue: Queue,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        prompts = ["too long", *(f"prompt {row}" for row in range(1, 24))]
        limited = toy_spec(work, 24, prompts, max_errors="0")
        job = submit(limited, settings, store, queue)
        run_queued(settings, store, queue, [0])
        assert jobctl(["reconcile", job]) == 0
        assert f"jobctl: {job}: it is failed now: 1 row failed, more than --max-errors 0" in only_line(capsys)

    def test_a_cancelled_job_is_left_alone(
        self,
        job: str,
        store: Store,
        queue: Queue,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        store.cancel_job(job)
        lose_messages(queue, monkeypatch)
        assert jobctl(["reconcile", job]) == 0
        assert only_line(capsys) == f"jobctl: {job}: nothing to do, it is cancelled"
        assert queue.live_deliveries() == []


class TestCancel:
    def test_a_job_that_has_ended_is_said_to_have(
        self, job: str, settings: Settings, store: Store, queue: Queue, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run_queued(settings, store, queue)
        assert jobctl(["cancel", job]) == 0
        assert only_line(capsys) == f"jobctl: {job} had ended before, finished"
        assert jobctl(["wait", job]) == 0

    def test_twice_says_so(self, job: str, capsys: pytest.CaptureFixture[str]) -> None:
        for said in ("is cancelled", "was cancelled before"):
            assert jobctl(["cancel", "out"]) == 0
            assert only_line(capsys) == f"jobctl: {job} {said}"

    def test_a_failed_job_stays_failed(self, job: str, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
        store.fail_job(job, "the model is refused")
        assert jobctl(["cancel", job]) == 0
        assert only_line(capsys) == f"jobctl: {job} had failed before"
        assert jobctl(["wait", job]) == 2


class TestListings:
    def test_list_and_status_have_the_same_keys_and_values(self, job: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert jobctl(["list", "-o", "json"]) == 0
        (listed,) = json.loads(capsys.readouterr().out)
        assert jobctl(["status", job, "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out) == listed

    def test_a_lost_job_has_the_same_keys(self, job: str, spec: JobSpec, capsys: pytest.CaptureFixture[str]) -> None:
        assert jobctl(["list", "-o", "json"]) == 0
        (before,) = json.loads(capsys.readouterr().out)
        shutil.rmtree(spec.output)
        assert jobctl(["list", "-o", "json"]) == 0
        (lost,) = json.loads(capsys.readouterr().out)
        assert list(lost) == list(before)
        assert (lost["job_id"], lost["state"], lost["num_rows"], lost["num_rows_done"]) == (job, "lost", 24, None)
        assert "holds no job" in lost["message"]
        assert jobctl(["list"]) == 0
        assert capsys.readouterr().out.splitlines()[1].split()[:4] == [job, "lost", "-", "-"]


def test_one_of_a_thing_is_one() -> None:
    assert [counted(num, "shard") for num in (0, 1, 2)] == ["0 shards", "1 shard", "2 shards"]


def test_a_small_job_is_counted_rightly(work: Path, broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec = toy_spec(work, 1)
    assert jobctl(["submit", spec.input, "--model", spec.model, "--output", "out"]) == 0
    assert "jobctl: 1 row in 1 shard, queued; output " in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "soon"])
def test_waiting_for_what_is_no_time_is_refused(seconds: str, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert jobctl(["wait", "job-1", "--timeout", seconds]) == 2
    assert "--timeout" in only_line(capsys)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "has no committed row; with --partial those that are saved are shown too"),
        (["--errors"], "has no committed failed row; with --partial those that are saved are shown too"),
        (["--partial"], "has no row that is committed or saved"),
    ],
)
def test_results_without_a_row_say_so(
    options: list[str], says: str, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert jobctl(["results", "out", *options]) == 0
    assert only_line(capsys) == f"jobctl: {job} {says}"


def test_a_finished_job_without_a_failed_row_says_so(
    job: str, settings: Settings, store: Store, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    run_queued(settings, store, queue)
    assert jobctl(["results", "out", "--errors"]) == 0
    assert only_line(capsys) == f"jobctl: {job} has no failed row"
