"""jobctl resume: a job goes on from its directory alone, unless something is not as it was planned."""

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.cli import jobctl
from jobs.control.queue import Queue
from jobs.control.status import read_status
from jobs.control.store import Store
from jobs.resume import resume
from jobs.settings import Settings
from jobs.submit import submit
from schemas.job import JobSpec
from tests.jobs.cli import files_under, only_line
from tests.jobs.working import run_queued
from tests.oracle import check_output
from tests.services import Server
from tests.toy import make_model, toy_spec, write_input

pytestmark = pytest.mark.services


@pytest.fixture
def spec(work: Path, broker: str, settings: Settings, store: Store, queue: Queue) -> JobSpec:
    """A job of three shards, the second one committed."""
    spec = toy_spec(work, 24)
    submit(spec, settings, store, queue)
    run_queued(settings, store, queue, shards=[1])
    return spec


def job_id_in(output: Path) -> str:
    return str(json.loads((output / "_jobctl" / "plan.json").read_text())["job_id"])


def test_a_job_that_the_broker_forgot_goes_on(
    spec: JobSpec,
    redis_server: Server,
    settings: Settings,
    store: Store,
    queue: Queue,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job_id = job_id_in(Path(spec.output))
    redis_server.flush()
    assert jobctl(["resume", "out"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{job_id}\n"
    assert "24 rows in 3 shards, running" in said.err
    assert run_queued(settings, store, queue) == [*range(8), *range(16, 24)]
    check_output(spec)


def test_a_directory_that_was_moved_is_where_the_job_goes_on(
    spec: JobSpec, work: Path, settings: Settings, store: Store, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also while the broker remembers where it was."""
    moved = Path(shutil.move(spec.output, work / "elsewhere"))
    assert jobctl(["resume", "-q", "elsewhere"]) == 0
    assert capsys.readouterr() == (f"{job_id_in(moved)}\n", "")
    assert store.job(job_id_in(moved)).output == str(moved)
    run_queued(settings, store, queue)
    check_output(spec.model_copy(update={"output": str(moved)}))
    assert not Path(spec.output).exists()


def test_a_copy_is_refused_while_the_job_is_there(
    spec: JobSpec, work: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(spec.output, work / "copy")
    before = files_under(work)
    assert jobctl(["resume", "copy"]) == 2
    assert f"is in {spec.output}, and {work}/copy is a copy" in only_line(capsys)
    assert files_under(work) == before
    assert [job.output for job in store.jobs()] == [spec.output]


def rewrite_input(spec: JobSpec) -> str:
    write_input(Path(spec.input), [f"other {row}" for row in range(23)])
    return f"input file {spec.input} has changed"


def remove_input(spec: JobSpec) -> str:
    Path(spec.input).unlink()
    return f"no such file or directory: {spec.input}"


def change_spec_file(spec: JobSpec) -> str:
    path = Path(spec.output) / "_jobctl" / "spec.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "seed": 7}))
    return "spec.json is not the spec that job-"


def cut_plan(spec: JobSpec) -> str:
    path = Path(spec.output) / "_jobctl" / "plan.json"
    path.write_bytes(path.read_bytes()[:200])
    return "plan.json is damaged"


def plan_of_another_version(spec: JobSpec) -> str:
    return change_plan(spec, lambda plan: plan.update(schema_version=2)) + " is damaged: Plan: schema_version"


def plan_with_a_row_in_two_shards(spec: JobSpec) -> str:
    return change_plan(spec, lambda plan: plan["shards"][1].update(first_row=7)) + " is damaged"


def change_plan(spec: JobSpec, change: Callable[[dict], object]) -> str:  # type: ignore[type-arg]
    path = Path(spec.output) / "_jobctl" / "plan.json"
    plan = json.loads(path.read_text())
    change(plan)
    path.write_text(json.dumps(plan))
    return "plan.json"


def change_model(spec: JobSpec) -> str:
    make_model(Path(spec.model), architectures=["Other"])
    return f"model {spec.model}: its files are at sha256:"


CHANGES = [
    rewrite_input,
    remove_input,
    change_spec_file,
    cut_plan,
    plan_of_another_version,
    plan_with_a_row_in_two_shards,
    change_model,
]


@pytest.mark.parametrize("change", CHANGES, ids=[change.__name__ for change in CHANGES])
def test_what_is_not_as_it_was_is_refused_by_its_name(
    change: Callable[[JobSpec], str],
    spec: JobSpec,
    redis_server: Server,
    store: Store,
    capsys: pytest.CaptureFixture[str],
) -> None:
    redis_server.flush()
    says = change(spec)
    before = files_under(Path(spec.output))
    assert jobctl(["resume", spec.output]) == (1 if says.startswith("plan.json") else 2)
    assert says in only_line(capsys)
    assert files_under(Path(spec.output)) == before
    assert store.jobs() == []


def test_a_file_that_is_new_in_an_input_directory_is_refused(
    work: Path, broker: str, settings: Settings, store: Store, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    write_input(work / "in" / "a.parquet", ["a"])
    spec = toy_spec(work, 1).model_copy(update={"input": str(work / "in")})
    submit(spec, settings, store, queue)
    new = write_input(work / "in" / "b.parquet", ["b"])
    assert jobctl(["resume", "out"]) == 2
    assert f"input file {new} is new" in only_line(capsys)


def test_a_spec_file_that_was_never_written_is_written(spec: JobSpec) -> None:
    """As where a submit was killed between plan and spec."""
    path = Path(spec.output) / "_jobctl" / "spec.json"
    before = path.read_text()
    path.unlink()
    assert jobctl(["resume", "-q", "out"]) == 0
    assert path.read_text() == before


@pytest.mark.parametrize("stop", ["cancelled", "failed"])
def test_a_stopped_job_runs_again(
    stop: str, spec: JobSpec, settings: Settings, store: Store, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    job_id = job_id_in(Path(spec.output))
    store.cancel_job(job_id) if stop == "cancelled" else store.fail_job(job_id, "refused")
    assert read_status(job_id, store).state == stop
    assert jobctl(["resume", "-q", job_id]) == 0
    assert capsys.readouterr().out == f"{job_id}\n"
    run_queued(settings, store, queue)
    check_output(spec)


def test_a_finished_job_is_left_as_it_is_and_said_to_be(
    spec: JobSpec,
    redis_server: Server,
    settings: Settings,
    store: Store,
    queue: Queue,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_queued(settings, store, queue)
    redis_server.flush()
    Path(spec.input).unlink()  # which nobody needs any more
    before = files_under(Path(spec.output))
    assert jobctl(["resume", "out"]) == 0
    assert capsys.readouterr().err == f"jobctl: {job_id_in(Path(spec.output))} had finished before; nothing to do\n"
    assert files_under(Path(spec.output)) == before
    assert store.jobs() == []


def test_many_at_once_make_one_message_for_each_missing_shard(
    spec: JobSpec, redis_server: Server, settings: Settings, redis_url: str, queue: Queue
) -> None:
    redis_server.flush()
    output, ids = Path(spec.output), []

    def call() -> None:
        ids.append(resume(output, settings, Store(settings, redis_url), Queue(settings, redis_url)))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids == [job_id_in(output)] * 4
    assert sorted((live.shard_index, live.delivery) for live in queue.live_deliveries()) == [(0, 1), (2, 1)]


def test_limits_stay_unless_others_are_given(spec: JobSpec, store: Store, redis_server: Server) -> None:
    job_id = job_id_in(Path(spec.output))
    limits = lambda: (store.job(job_id).max_errors, store.job(job_id).timeout_seconds)  # noqa: E731
    assert jobctl(["resume", "-q", "out", "--max-errors", "5%", "--timeout", "60"]) == 0
    assert limits() == ("5%", 60.0)
    assert jobctl(["resume", "-q", "out", "--max-errors", "100%"]) == 0
    assert limits() == ("100%", 60.0)
    redis_server.flush()
    assert jobctl(["resume", "-q", "out"]) == 0
    assert limits() == (None, None)  # the plan's


@pytest.mark.parametrize("options", [["--max-errors", "-1"], ["--timeout", "0"], ["--timeout", "nan"]])
def test_a_wrong_limit_is_refused_by_its_option(
    options: list[str], spec: JobSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    assert jobctl(["resume", "out", *options]) == 2
    assert f"jobctl: {options[0]}: " in only_line(capsys)
