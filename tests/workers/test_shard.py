"""One attempt at one shard, in this process: no Celery, a real store, a real output directory."""

import json
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.control.queue import Queue
from jobs.control.store import Store
from jobs.plan.planning import load_plan
from jobs.settings import Settings
from jobs.storage.checkpoint import read_finished
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipts
from schemas.errors import (
    CommitConflict,
    JobCancelled,
    LeaseLost,
    NotFound,
    QueueUnavailable,
    ShardRetryable,
)
from schemas.job import JobSpec
from schemas.message import ShardMessage
from tests.oracle import check_output
from tests.toy import ToySession, load_session, toy_spec
from tests.workers.attempts import resumed, session_of, spec_of, submitted
from workers.context import WorkerContext, WorkerOptions
from workers.shard import run_shard
from workers.stopping import WorkerStopping
from workers.tasks import handle_message

pytestmark = pytest.mark.services


def test_the_last_shard_finishes_the_job(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue, context: WorkerContext
) -> None:
    spec = toy_spec(tmp_path, 20, save_token_ids=True)
    messages = submitted(spec, settings, store, queue)
    for message in reversed(messages):
        assert not Layout(Path(spec.output)).success_path.exists()
        run_shard(message, context)
    check_output(spec)
    assert store.job(messages[0].job_id).ended == "finished"
    states = store.shard_states(messages[0].job_id)
    assert (states.running, states.failures) == ({}, {})


def test_rows_that_cannot_be_generated_are_errors_in_their_place(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue, context: WorkerContext
) -> None:
    spec = toy_spec(tmp_path, 3, prompts=["a", None, "too long"])
    (message,) = submitted(spec, settings, store, queue)
    run_shard(message, context)
    table = pq.read_table(Path(spec.output) / "part-00000.parquet")
    assert table["status"].to_pylist() == ["ok", "error", "error"]
    assert table["error_kind"].to_pylist()[2] == "prompt_too_long"
    assert read_receipts(Layout(Path(spec.output)))[0].num_failed == 2


def test_the_session_is_kept_between_shards_and_jobs_of_a_model(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue
) -> None:
    loads: list[str] = []

    def load(spec: JobSpec, threads: int | None) -> ToySession:
        loads.append(spec.model)
        return load_session(spec, threads)

    context = WorkerContext(settings, store, WorkerOptions(name="w", device="cpu"), load)
    spec = toy_spec(tmp_path, 16)
    another_job = spec.model_copy(update={"output": str(tmp_path / "out2"), "seed": 5})
    another_model = toy_spec(tmp_path / "b", 8, round_seconds=0.0)
    for one in (spec, another_job, another_model):
        for message in submitted(one, settings, store, queue):
            run_shard(message, context)
        check_output(one)
    assert loads == [spec.model, another_model.model]


def test_a_device_of_the_workers_own_replaces_auto(settings: Settings, store: Store, tmp_path: Path) -> None:
    devices: list[str] = []

    def load(spec: JobSpec, threads: int | None) -> ToySession:
        devices.append(spec.device)
        return ToySession(spec)

    WorkerContext(settings, store, WorkerOptions(name="w", device="hpu"), load).session_for(toy_spec(tmp_path, 1))
    assert devices == ["hpu"]


class TestResume:
    """An attempt that ends early saves its finished rows, and the next one generates only the others."""

    @pytest.mark.parametrize(
        ("error", "counted"),
        [(ShardRetryable("out of memory"), 0), (WorkerStopping("bye"), 0), (JobCancelled("by the user"), 0)],
    )
    def test_finished_rows_are_not_generated_again(
        self,
        tmp_path: Path,
        settings: Settings,
        store: Store,
        queue: Queue,
        context: WorkerContext,
        error: Exception,
        counted: int,
    ) -> None:
        spec = toy_spec(tmp_path, 8)
        (message,) = submitted(spec, settings, store, queue)
        session = session_of(context, spec_of(message, store))

        def stop_after_row_0(row_index: int) -> None:
            if row_index == 0:  # the last of the first batch
                raise error

        session.after_row = stop_after_row_0
        with pytest.raises(type(error)):
            run_shard(message, context)
        assert sorted(session.generated) == [0, 1, 2, 3]
        assert store.shard_states(message.job_id).failures.get(0, 0) == counted
        session.after_row, session.generated = lambda row_index: None, []
        run_shard(resumed(message, settings, store), context)
        assert sorted(session.generated) == [4, 5, 6, 7]
        check_output(spec)

    def test_rows_are_saved_while_the_shard_runs(
        self, tmp_path: Path, settings: Settings, store: Store, queue: Queue, context: WorkerContext
    ) -> None:
        spec = toy_spec(tmp_path, 8)
        (message,) = submitted(spec, settings, store, queue)
        session = session_of(context, spec_of(message, store))
        saved: list[int] = []
        plan = load_plan(Path(spec.output))

        def look(row_index: int) -> None:
            time.sleep(settings.checkpoint_seconds)
            saved.append(len(read_finished(Layout(Path(spec.output)), plan.shards[0])))

        session.after_row = look
        run_shard(message, context)
        assert saved == [0, 2, 3, 4, 5, 6, 7, 8]
        assert read_finished(Layout(Path(spec.output)), plan.shards[0]) == {}

    def test_rows_of_a_part_that_cannot_be_written_are_not_generated_again(
        self,
        tmp_path: Path,
        settings: Settings,
        store: Store,
        queue: Queue,
        context: WorkerContext,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def full(*arguments: Any) -> None:
            raise ShardRetryable("cannot write its part: no space left on device")

        spec = toy_spec(tmp_path, 8)
        (message,) = submitted(spec, settings, store, queue)
        session = session_of(context, spec_of(message, store))
        with monkeypatch.context() as patch, pytest.raises(ShardRetryable):
            patch.setattr("workers.publish.write_part", full)
            run_shard(message, context)
        session.generated = []
        run_shard(resumed(message, settings, store), context)
        assert session.generated == []
        check_output(spec)


class TestOtherAttempts:
    def test_an_attempt_whose_lease_another_took_publishes_nothing(
        self, tmp_path: Path, settings: Settings, store: Store, queue: Queue, context: WorkerContext
    ) -> None:
        spec = toy_spec(tmp_path, 4)
        (message,) = submitted(spec, settings, store, queue)
        session = session_of(context, spec_of(message, store))
        other = WorkerContext(settings, store, WorkerOptions(name="w2", device="cpu"), load_session)

        def sleep_too_long(row_index: int) -> None:
            if row_index == 0:
                with queue._redis as client:
                    client.delete(f"{settings.key_prefix}job:{message.job_id}:lease:0")
                run_shard(resumed(message, settings, store), other)

        session.after_row = sleep_too_long
        with pytest.raises((LeaseLost, CommitConflict)):
            run_shard(message, context)
        receipt = read_receipts(Layout(Path(spec.output)))[0]
        assert (receipt.worker, receipt.attempt) == ("w2", 2)
        check_output(spec)

    def test_a_shard_that_is_committed_is_not_generated_again(
        self, tmp_path: Path, settings: Settings, store: Store, queue: Queue, context: WorkerContext
    ) -> None:
        spec = toy_spec(tmp_path, 12)
        first, second = submitted(spec, settings, store, queue)
        run_shard(first, context)
        session = session_of(context, spec_of(first, store))
        session.generated = []
        run_shard(resumed(first, settings, store), context)
        run_shard(first, context)  # the same message once more
        assert session.generated == []
        run_shard(second, context)
        check_output(spec)

    def test_the_receipt_decides_where_the_broker_is_away_at_the_end(
        self, tmp_path: Path, settings: Settings, store: Store, queue: Queue, context: WorkerContext
    ) -> None:
        spec = toy_spec(tmp_path, 4)
        (message,) = submitted(spec, settings, store, queue)
        session = session_of(context, spec_of(message, store))
        session.after_row = lambda row_index: cut_off(store) if row_index == 0 else None
        run_shard(message, context)
        check_output(spec)


class TestMessages:
    """What becomes of a message: nothing here may be raised but SystemExit."""

    def test_a_model_that_is_refused_fails_the_job(
        self, tmp_path: Path, settings: Settings, store: Store, queue: Queue
    ) -> None:
        context = WorkerContext(settings, store, WorkerOptions(name="w", device="cpu"), load_session)
        (message,) = submitted(toy_spec(tmp_path, 4, refuse="no recurrent models"), settings, store, queue)
        handle_message([message.to_json()], context)
        assert store.job(message.job_id).failed == "no recurrent models"
        assert store.shard_states(message.job_id).failures == {0: 0}

    def test_an_input_that_changed_fails_the_job(
        self, tmp_path: Path, settings: Settings, store: Store, queue: Queue, context: WorkerContext
    ) -> None:
        spec = toy_spec(tmp_path, 4)
        (message,) = submitted(spec, settings, store, queue)
        toy_spec(tmp_path, 5)
        handle_message([message.to_json()], context)
        assert "has changed" in str(store.job(message.job_id).failed)

    def test_an_error_nobody_foresaw_counts_and_ends_the_process(
        self, tmp_path: Path, settings: Settings, store: Store, queue: Queue
    ) -> None:
        context = WorkerContext(settings, store, WorkerOptions(name="w", device="cpu"), load_session)
        spec = toy_spec(tmp_path, 4, fail_at_prompt="prompt 3")
        (message,) = submitted(spec, settings, store, queue)
        with pytest.raises(SystemExit) as ended:
            handle_message([message.to_json()], context)
        assert ended.value.code == 1
        assert store.shard_states(message.job_id).errors == {0: "nobody foresaw this"}

    @pytest.mark.parametrize(
        "arguments", [[], ["a", "b"], [3], ["not json"], ['{"job_id": "j"}'], [{"job_id": "j"}], [None]]
    )
    def test_what_is_no_shards_message_is_refused_and_kept(
        self, store: Store, context: WorkerContext, arguments: list[Any]
    ) -> None:
        handle_message(arguments, context)
        assert [entry["body"] for entry in store.refused_messages()] == [json.dumps(arguments)]

    def test_a_message_of_a_shard_that_is_not_in_the_plan_is_refused(
        self, tmp_path: Path, settings: Settings, store: Store, queue: Queue, context: WorkerContext
    ) -> None:
        (message,) = submitted(toy_spec(tmp_path, 4), settings, store, queue)
        handle_message([message.model_copy(update={"shard_index": 7}).to_json()], context)
        assert "no shard 7" in store.refused_messages()[0]["reason"]

    def test_a_message_of_a_forgotten_job_is_dropped(self, store: Store, context: WorkerContext) -> None:
        message = ShardMessage(job_id="job-gone", shard_index=0, delivery=1)
        with pytest.raises(NotFound):
            run_shard(message, context)
        handle_message([message.to_json()], context)
        assert store.refused_messages() == []

    def test_a_broker_that_is_away_is_survived(self, context: WorkerContext) -> None:
        cut_off(context.store)
        handle_message([ShardMessage(job_id="job-1", shard_index=0, delivery=1).to_json()], context)


def cut_off(store: Store) -> None:
    """The store's broker is away from now on."""

    def away(*arguments: Any, **options: Any) -> None:
        raise QueueUnavailable("no broker")

    for name in ("_run", "_transition", "_pipelined"):
        setattr(store, name, away)
