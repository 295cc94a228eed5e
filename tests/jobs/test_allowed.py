"""Where a job may write and what it may load: refused in one line, by submit and worker, with nothing written."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from jobs.allowed import check_allowed, check_output
from jobs.control.queue import Queue, shard_queue
from jobs.control.reconcile import reconcile_all
from jobs.control.status import read_status
from jobs.control.store import Store
from jobs.plan import plans
from jobs.resume import resume
from jobs.settings import Settings
from jobs.storage.layout import Layout
from jobs.storage.receipts import roll_forward
from jobs.submit import submit
from schemas.errors import InvalidJob
from schemas.job import JobSpec
from schemas.plan import ShardPlan
from schemas.receipt import Receipt
from tests.jobs.working import counting_worker
from tests.services import Server
from tests.storage import write_parquet
from tests.toy import make_model, toy_spec
from tests.workers.attempts import submitted
from workers.tasks import handle_message


def settings_of(**values: Any) -> Settings:
    return Settings(data_dir=Path("/d"), **values)


def test_lists_are_read_from_variables_and_given_to_children() -> None:
    environ = {
        "JOBCTL_ALLOWED_OUTPUTS": "/a:/b/c:",
        "JOBCTL_ALLOWED_MODELS": "owner/*:/models",
        "JOBCTL_DATA_DIR": "/d",
    }
    settings = Settings.from_environ(environ | {"JOBCTL_ALLOW_PICKLE": "true"})
    assert settings.allowed_outputs == (Path("/a"), Path("/b/c"))
    assert (settings.allowed_models, settings.allow_pickle) == (("owner/*", "/models"), True)
    assert Settings.from_environ(settings.to_environ()) == settings
    assert Settings.from_environ(environ | {"JOBCTL_ALLOWED_OUTPUTS": ""}).allowed_outputs == ()


@pytest.mark.parametrize(
    ("output", "is_allowed"),
    [
        ("root", True),
        ("root/a/b", True),
        ("root/link-in/a", True),
        ("link-to-root/a", True),
        ("root/../root/a", True),
        ("other", False),
        ("root-2", False),
        ("root/../other", False),
        ("root/link-out", False),
        ("root/link-out/a/b", False),
        ("root/dangling/a", False),
    ],
)
def test_an_output_lies_in_an_allowed_root_links_followed(tmp_path: Path, output: str, is_allowed: bool) -> None:
    for name in ("root/in", "other", "root-2"):
        (tmp_path / name).mkdir(parents=True)
    links = {"root/link-in": "root/in", "link-to-root": "root", "root/link-out": "other", "root/dangling": "nowhere"}
    for name, target in links.items():
        (tmp_path / name).symlink_to(tmp_path / target)
    settings = settings_of(allowed_outputs=(tmp_path / "unused", tmp_path / "root"))
    if is_allowed:
        check_output(Layout(tmp_path / output), settings)
    else:
        with pytest.raises(
            InvalidJob, match=r"^output \S+ is not under JOBCTL_ALLOWED_OUTPUTS; choose another --output$"
        ):
            check_output(Layout(tmp_path / output), settings)


def spec_with(**values: Any) -> JobSpec:
    return JobSpec(**{"input": "i", "output": "/o", "model": "owner/name", **values})


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, None),
        ({"model": "owner/other"}, None),
        ({"model": "exact/name"}, None),
        ({"model": "{folder}/a/model"}, None),
        ({"model": "exact/name-2"}, "model exact/name-2 is not among JOBCTL_ALLOWED_MODELS"),
        ({"model": "{folder}-2/model"}, "is not among"),
        ({"model": "{folder}/../x.gguf"}, "is not among"),
        ({"model": "{folder}/link"}, "is not among"),
        ({"draft": "model", "draft_model": "some/draft"}, "model some/draft is not among JOBCTL_ALLOWED_MODELS"),
    ],
)
def test_a_model_is_in_an_allowed_folder_or_matches_a_hub_id(
    tmp_path: Path, values: dict[str, str], says: str | None
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/link").symlink_to(tmp_path)
    spec = spec_with(**{name: value.replace("{folder}", str(tmp_path / "models")) for name, value in values.items()})
    settings = settings_of(allowed_models=("owner/*", "exact/name", str(tmp_path / "models")))
    if says is None:
        check_allowed(spec, Layout(tmp_path / "out"), settings)
        return
    with pytest.raises(InvalidJob, match=says):
        check_allowed(spec, Layout(tmp_path / "out"), settings)


@pytest.mark.parametrize("option", ["allow_pickle", "trust_remote_code"])
def test_what_the_worker_does_not_allow_is_refused_by_name(tmp_path: Path, option: str) -> None:
    spec, layout = spec_with(**{option: True}), Layout(tmp_path)
    with pytest.raises(InvalidJob, match=f"^--{option.replace('_', '-')} is not allowed here; set JOBCTL_ALLOW_"):
        check_allowed(spec, layout, settings_of(allow_pickle=option != "allow_pickle"))
    check_allowed(spec, layout, settings_of(allow_pickle=True, allow_remote_code=True))


LINKS = ("_jobctl", "_jobctl/staged", "_jobctl/receipts", "_jobctl/wip", "_jobctl/wip/00000", "_jobctl/plan.json")


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("has_roots", [True, False])
def test_a_link_among_a_jobs_own_files_is_refused(tmp_path: Path, name: str, has_roots: bool) -> None:
    link = tmp_path / "out" / name
    link.parent.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidJob, match=f"{link} is a link, which no job has made"):
        check_output(Layout(tmp_path / "out"), settings_of(allowed_outputs=(tmp_path,) if has_roots else ()))


def test_another_users_directory_is_refused_unless_roots_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, user = Layout(tmp_path / "out"), os.geteuid()
    layout.control_dir.mkdir(parents=True)
    check_output(layout, settings_of())
    monkeypatch.setattr("jobs.allowed.os.geteuid", lambda: user + 1)
    with pytest.raises(InvalidJob, match=rf"_jobctl belongs to user {user}, and this process to user {user + 1}; "):
        check_output(layout, settings_of())
    check_output(layout, settings_of(allowed_outputs=(tmp_path,)))


SHARD = {"shard_index": 0, "first_row": 0, "num_rows": 1}
RECEIPT = SHARD | {
    "job_id": "j",
    "attempt": 1,
    "staged": "00000-1-abc.parquet",
    "part": "part-00000.parquet",
    "num_samples": 1,
    "num_ok": 1,
    "num_failed": 0,
    "size_bytes": 1,
    "sha256": "0",
    "worker": "w",
    "committed_at": "",
}
OUTSIDE = (
    "/etc",
    "..",
    ".",
    "a=1/..",
    "../a=1",
    "a=1/../..",
    "a=1//b=2",
    "a=1/",
    "/a=1",
    "_jobctl",
    "_a=1",
    ".a=1",
    "a",
)


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_plan_or_receipt_whose_names_lead_elsewhere_is_not_read(path: str) -> None:
    for partition in (path, f"a=1/{path}", f"{path}/b=2"):
        with pytest.raises(InvalidJob, match=r"ShardPlan: partition"):
            ShardPlan.from_mapping({**SHARD, "partition": partition})
    for part in (f"{path}/part-00000.parquet", path, f"{path}.parquet", "part-00000.parquet/" + path):
        with pytest.raises(InvalidJob, match=r"Receipt: part"):
            Receipt.from_mapping({**RECEIPT, "part": part})
    for staged in (f"{path}/00000-1-abc.parquet", path, f"../{path}.parquet", ".parquet"):
        with pytest.raises(InvalidJob, match=r"Receipt: staged"):
            Receipt.from_mapping({**RECEIPT, "staged": staged})


@pytest.mark.parametrize("partition", ["", "a=1", "a=1/b=2", "a=..", "day=2026-01-01/lang=__HIVE_DEFAULT_PARTITION__"])
def test_hive_directories_are_read(partition: str) -> None:
    assert ShardPlan.from_mapping({**SHARD, "partition": partition}).partition == partition
    part = f"{partition}/part-00000.parquet".lstrip("/")
    assert Receipt.from_mapping({**RECEIPT, "part": part}).part == part


def submitted_elsewhere(spec: JobSpec, settings: Settings, store: Store, queue: Queue, **ours: Any) -> str:
    """Submitted by somebody without our settings; what our worker makes of its messages is the job's message."""
    messages = submitted(spec, settings, store, queue)
    before = contents(Path(spec.output))
    context, sessions = counting_worker(settings.model_copy(update=ours), store)
    for message in messages:
        handle_message([message.to_json()], context)
    assert (sessions, contents(Path(spec.output))) == ([], before)
    status = read_status(messages[0].job_id, store)
    assert status.state == "failed"
    return str(status.message)


def contents(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*"))


@pytest.mark.services
def test_a_worker_refuses_what_its_own_settings_do_not_allow(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue
) -> None:
    trusting = settings.model_copy(update={"allow_pickle": True, "allow_remote_code": True})
    for index, (options, ours, says) in enumerate(
        [
            ({}, {"allowed_outputs": (tmp_path / "root",)}, "is not under JOBCTL_ALLOWED_OUTPUTS"),
            ({}, {"allowed_models": ("owner/*",)}, "is not among JOBCTL_ALLOWED_MODELS"),
            ({"allow_pickle": True}, {"allow_pickle": False}, "--allow-pickle is not allowed here"),
            ({"trust_remote_code": True}, {"allow_remote_code": False}, "--trust-remote-code is not allowed here"),
        ]
    ):
        spec = toy_spec(tmp_path / str(index), 8, **options)
        assert says in submitted_elsewhere(spec, trusting, store, queue, **ours)


@pytest.mark.services
def test_submit_refuses_early_and_leaves_nothing(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue
) -> None:
    spec = toy_spec(tmp_path, 8)
    strict = settings.model_copy(update={"allowed_outputs": (tmp_path / "root",)})
    with pytest.raises(InvalidJob, match="JOBCTL_ALLOWED_OUTPUTS"):
        submit(spec, strict, store, queue)
    assert not Path(spec.output).exists()
    submit(spec, settings, store, queue)
    with pytest.raises(InvalidJob, match="JOBCTL_ALLOWED_OUTPUTS"):
        resume(Path(spec.output), strict, store, queue)


def hive_job(tmp_path: Path) -> JobSpec:
    write_parquet(tmp_path / "in/day=1/a.parquet", {"prompt": ["p"]})
    model = make_model(tmp_path / "model")
    return JobSpec(input=str(tmp_path / "in"), output=str(tmp_path / "out"), model=model, max_new_tokens=4)


@pytest.mark.services
def test_a_linked_hive_directory_is_refused_before_anything_is_loaded(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue
) -> None:
    spec, elsewhere = hive_job(tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (message,) = submitted(spec, settings, store, queue)
    (Path(spec.output) / "day=1").symlink_to(elsewhere)
    context, sessions = counting_worker(settings, store)
    handle_message([message.to_json()], context)
    status = read_status(message.job_id, store)
    assert (status.state, sessions, contents(elsewhere)) == ("failed", [], [])
    assert status.message == f"{spec.output}/day=1 leads out of {spec.output}; choose another --output"


def test_a_part_is_not_put_in_place_through_a_link(tmp_path: Path) -> None:
    layout, elsewhere = Layout(tmp_path / "out"), tmp_path / "elsewhere"
    for directory in (layout.staged_dir, elsewhere):
        directory.mkdir(parents=True)
    receipt = Receipt.from_mapping({**RECEIPT, "part": "day=1/part-00000.parquet"})
    (layout.staged_dir / receipt.staged).touch()
    (layout.output / "day=1").symlink_to(elsewhere)
    with pytest.raises(InvalidJob, match="day=1 leads out of"):
        roll_forward(layout, receipt)
    assert contents(elsewhere) == []


@pytest.mark.services
def test_a_plan_that_names_another_directory_fails_its_job(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue
) -> None:
    (message,) = submitted(hive_job(tmp_path), settings, store, queue)
    path = Layout(tmp_path / "out").plan_path
    plan = json.loads(path.read_text())
    plan["shards"][0]["partition"] = "../../elsewhere"
    path.write_text(json.dumps(plan))
    plans._plan.cache_clear()
    context, _ = counting_worker(settings, store)
    handle_message([message.to_json()], context)
    record = store.job(message.job_id)
    assert record.failed is not None and "plan.json is damaged: Plan: shards.0.partition" in record.failed
    assert not (tmp_path.parent / "elsewhere").exists()


@pytest.mark.services
def test_the_reconciler_leaves_other_users_jobs_to_them(
    tmp_path: Path,
    settings: Settings,
    store: Store,
    queue: Queue,
    redis_server: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job_id = submit(toy_spec(tmp_path, 8), settings, store, queue)
    redis_server.client().delete(f"{settings.key_prefix}{shard_queue('auto')}")  # its message is lost
    impatient = settings.model_copy(update={"grace_seconds": 0.001})
    store, user = Store(impatient, redis_server.url), os.geteuid()
    monkeypatch.setattr("jobs.allowed.os.geteuid", lambda: user + 1)
    reconcile_all(impatient, store, queue)
    assert store.open_jobs() == [job_id] and queue.live_deliveries() == []
    monkeypatch.undo()
    reconcile_all(impatient, store, queue)
    assert len(queue.live_deliveries()) == 1
