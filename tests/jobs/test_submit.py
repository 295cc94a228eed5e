"""Submitting: everything is checked before anything is written, and twice is once."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.control.queue import Queue
from jobs.control.status import exit_code_of, read_status, read_status_of
from jobs.control.store import Store
from jobs.plan.models import local_revision
from jobs.settings import Settings
from jobs.submit import plan_job, submit
from schemas.errors import InvalidJob, NotFound, QueueUnavailable
from schemas.job import JobSpec
from schemas.message import ShardMessage
from tests.oracle import check_output
from tests.services import Server
from tests.toy import load_session, make_model, toy_spec, write_input
from workers.context import WorkerContext, WorkerOptions
from workers.shard import run_shard

pytestmark = pytest.mark.services

Submit = Callable[..., str]


@pytest.fixture
def submitted(settings: Settings, store: Store, queue: Queue) -> Submit:
    def call(spec: JobSpec, **options: object) -> str:
        return submit(spec, settings, store, queue, **options)

    return call


def run_all(settings: Settings, store: Store, queue: Queue) -> None:
    context = WorkerContext(settings, store, WorkerOptions(name="w1", device="cpu"), load_session)
    for live in queue.live_deliveries():
        run_shard(ShardMessage(job_id=live.job_id, shard_index=live.shard_index, delivery=live.delivery), context)


def file_times(spec: JobSpec) -> list[tuple[Path, int]]:
    files = (path for path in Path(spec.output).rglob("*") if path.is_file())
    return sorted((path, path.stat().st_mtime_ns) for path in files)


def test_messages_for_a_model_without_a_chat_template_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    spec = toy_spec(tmp_path, 1)
    pq.write_table(pa.table({"messages": [[{"role": "user", "content": "hello"}]]}), spec.input)
    with pytest.raises(InvalidJob, match=r"no chat template .* --prompt-column"):
        plan_job(spec)
    assert not Path(spec.output).exists()
    (Path(spec.model) / "chat_template.jinja").write_text("{{ messages }}")
    assert plan_job(spec).prompt_kind == "messages"


def test_every_shard_has_a_message_and_the_plan_is_saved_first(
    tmp_path: Path, submitted: Submit, store: Store, queue: Queue
) -> None:
    spec = toy_spec(tmp_path, 20)
    job_id = submitted(spec)
    assert sorted((live.shard_index, live.delivery) for live in queue.live_deliveries()) == [(0, 1), (1, 1), (2, 1)]
    plan = json.loads((Path(spec.output) / "_jobctl" / "plan.json").read_text())
    assert (plan["job_id"], plan["spec"]["revision"][:7]) == (job_id, "sha256:")
    status = read_status(job_id, store)
    assert (status.state, status.num_rows, status.num_shards, exit_code_of(status)) == ("queued", 20, 3, 0)


def test_both_models_are_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = make_model(tmp_path / "draft", architectures=["Small"])
    monkeypatch.chdir(tmp_path)
    spec = toy_spec(tmp_path, 1).model_copy(update={"draft": "model", "draft_model": "./draft"})
    pinned = plan_job(spec).spec
    assert pinned.draft_model == draft
    assert pinned.draft_revision == local_revision(Path(draft)) != pinned.revision == local_revision(Path(spec.model))
    assert plan_job(pinned).spec == pinned


def test_the_same_request_is_the_same_job(tmp_path: Path, submitted: Submit, store: Store, queue: Queue) -> None:
    spec = toy_spec(tmp_path, 20)
    job_id = submitted(spec)
    assert submitted(spec) == job_id
    assert len(queue.live_deliveries()) == 3
    assert [job.job_id for job in store.jobs()] == [job_id]


def test_many_submitters_of_the_same_request_make_one_job(
    tmp_path: Path, settings: Settings, redis_url: str, queue: Queue
) -> None:
    spec, ids = toy_spec(tmp_path, 20), []

    def call() -> None:
        ids.append(submit(spec, settings, Store(settings, redis_url), Queue(settings, redis_url)))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 4
    assert len(set(ids)) == 1
    assert sorted((live.shard_index, live.delivery) for live in queue.live_deliveries()) == [(0, 1), (1, 1), (2, 1)]


def test_another_request_is_another_job(tmp_path: Path, submitted: Submit) -> None:
    spec = toy_spec(tmp_path, 20)
    others = [
        spec.model_copy(update={"output": str(tmp_path / "seed"), "seed": 1}),
        spec.model_copy(update={"output": str(tmp_path / "shards"), "shard_rows": 5}),
    ]
    assert len({submitted(one) for one in (spec, *others)}) == 3


def test_new_makes_another_job_of_the_same_request(tmp_path: Path, submitted: Submit) -> None:
    spec = toy_spec(tmp_path, 8)
    second, third = (spec.model_copy(update={"output": str(tmp_path / name)}) for name in ("second", "third"))
    assert len({submitted(spec), submitted(second, new=True), submitted(third, new=True)}) == 3
    with pytest.raises(InvalidJob, match="choose another --output"):
        submitted(spec, new=True)


def test_a_run_id_makes_one_job_however_often_it_is_submitted(tmp_path: Path, submitted: Submit, store: Store) -> None:
    spec = toy_spec(tmp_path, 8)
    job_id = submitted(spec, run_id="nightly/2030-01-31T02:00:00Z")
    assert job_id == "nightly-2030-01-31T02-00-00Z"
    write_input(tmp_path / "in.parquet", ["the input has changed since"])
    assert submitted(spec, run_id="nightly/2030-01-31T02:00:00Z") == job_id
    store.cancel_job(job_id)
    assert submitted(spec, run_id="nightly/2030-01-31T02:00:00Z") == job_id
    assert read_status(job_id, store).state == "cancelled"


@pytest.mark.parametrize("stop", [Store.cancel_job, lambda store, job_id: store.fail_job(job_id, "refused")])
def test_a_stopped_job_runs_again_when_it_is_submitted_again(
    tmp_path: Path,
    submitted: Submit,
    settings: Settings,
    store: Store,
    queue: Queue,
    stop: Callable[[Store, str], bool],
) -> None:
    spec = toy_spec(tmp_path, 16)
    job_id = submitted(spec)
    stop(store, job_id)
    assert submitted(spec) == job_id
    assert read_status(job_id, store).state == "queued"
    run_all(settings, store, queue)
    check_output(spec)


def test_a_finished_job_is_left_as_it_is(
    tmp_path: Path, submitted: Submit, settings: Settings, store: Store, queue: Queue
) -> None:
    spec = toy_spec(tmp_path, 8)
    job_id = submitted(spec)
    run_all(settings, store, queue)
    before = file_times(spec)
    assert submitted(spec) == job_id
    assert file_times(spec) == before
    assert (read_status(job_id, store).state, store.open_jobs()) == ("finished", [])


def test_a_job_that_the_broker_forgot_is_resumed_from_its_directory(
    tmp_path: Path, submitted: Submit, settings: Settings, store: Store, queue: Queue, redis_server: Server
) -> None:
    spec = toy_spec(tmp_path, 24)
    job_id = submitted(spec)
    context = WorkerContext(settings, store, WorkerOptions(name="w1", device="cpu"), load_session)
    run_shard(ShardMessage(job_id=job_id, shard_index=1, delivery=1), context)
    redis_server.flush()
    with pytest.raises(NotFound):
        read_status(job_id, store)
    forgotten = read_status_of(Path(spec.output))
    assert (forgotten.state, forgotten.num_ok, exit_code_of(forgotten)) == ("incomplete", 8, 1)
    assert submitted(spec) == job_id
    assert sorted(live.shard_index for live in queue.live_deliveries()) == [0, 2]
    run_all(settings, store, queue)
    check_output(spec)
    assert read_status_of(Path(spec.output)).state == "finished"


class TestRefusals:
    def test_nothing_is_left_behind(self, tmp_path: Path, submitted: Submit, store: Store, queue: Queue) -> None:
        good = toy_spec(tmp_path, 8)
        bad = [
            {"input": str(tmp_path / "nothing.parquet")},
            {"prompt_column": "nope"},
            {"model": str(tmp_path / "no model")},
            {"model": make_model(tmp_path / "model2"), "revision": "sha256:other"},
        ]
        before = sorted(tmp_path.rglob("*"))
        for changes in bad:
            with pytest.raises(InvalidJob) as caught:
                submitted(good.model_copy(update=changes))
            assert "\n" not in str(caught.value)
        assert sorted(tmp_path.rglob("*")) == before
        assert (store.jobs(), queue.live_deliveries()) == ([], [])

    def test_a_draft_model_is_refused_by_its_own_option(self, tmp_path: Path) -> None:
        spec = toy_spec(tmp_path, 1).model_copy(update={"draft": "model", "draft_model": str(tmp_path / "none")})
        with pytest.raises(InvalidJob, match=rf"--draft-model: model {tmp_path}/none: no such folder"):
            plan_job(spec)
        assert not Path(spec.output).exists()

    def test_a_draft_model_that_changed_is_refused(self, tmp_path: Path, submitted: Submit) -> None:
        draft = Path(make_model(tmp_path / "draft"))
        spec = toy_spec(tmp_path, 1).model_copy(update={"draft": "model", "draft_model": str(draft)})
        submitted(spec)
        pinned = plan_job(spec).spec
        (draft / "tokenizer.json").write_text("{}")
        with pytest.raises(InvalidJob, match=r"--draft-revision is 'sha256:.* there and 'sha256:.* here"):
            submitted(spec)
        with pytest.raises(InvalidJob, match=r"--draft-model: .* its files are at .*, without --draft-revision"):
            plan_job(pinned)

    def test_an_output_of_another_job_names_what_differs(self, tmp_path: Path, submitted: Submit) -> None:
        spec = toy_spec(tmp_path, 8)
        submitted(spec)
        with pytest.raises(InvalidJob, match="--seed is 0 there and 1 here"):
            submitted(spec.model_copy(update={"seed": 1}))

    def test_without_a_broker_nothing_is_written(self, tmp_path: Path, settings: Settings) -> None:
        spec, away = toy_spec(tmp_path, 8), "unix:///nowhere/s"
        with pytest.raises(QueueUnavailable):
            submit(spec, settings, Store(settings, away), Queue(settings, away))
        assert not Path(spec.output).exists()

    def test_a_dry_run_writes_nothing(self, tmp_path: Path) -> None:
        spec = toy_spec(tmp_path, 20)
        before = sorted(tmp_path.rglob("*"))
        assert len(plan_job(spec).shards) == 3
        assert sorted(tmp_path.rglob("*")) == before
