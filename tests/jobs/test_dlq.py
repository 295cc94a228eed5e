"""Dead letters: shards that were given up and messages that nobody could do, listed, shown, replayed and purged."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from jobs.cli import jobctl
from jobs.control.dead_letters import message_in
from jobs.control.queue import Queue
from jobs.control.reconcile import reconcile_job
from jobs.control.status import read_status
from jobs.control.store import Store
from jobs.settings import Settings
from jobs.submit import submit
from schemas.message import ShardMessage
from tests.jobs.cli import only_line
from tests.jobs.working import counting_worker, run_queued
from tests.oracle import check_output
from tests.services import Server
from tests.toy import make_model, toy_spec
from workers.tasks import handle_message

pytestmark = pytest.mark.services


@pytest.fixture
def once(settings: Settings) -> Settings:
    return settings.model_copy(update={"max_attempts": 1, "bisect_attempts": 0})


@pytest.fixture
def job(work: Path, broker: str, once: Settings, queue: Queue) -> str:
    """Three shards, of which the first two fail at once; the third one is committed. The job has ended incomplete."""
    # The first row of each shard, alone in its batch, so that nothing of its shard is saved.
    prompts = ["fail" if row in (0, 8) else f"prompt {row}" for row in range(24)]
    spec = toy_spec(work, 24, prompts, fail_at_prompt="fail", batch_size=1)
    store = Store(once, broker)
    job_id = submit(spec, once, store, queue)
    for shard in range(3):
        try:
            run_queued(once, store, queue, [shard])
        except SystemExit:
            assert shard < 2
    reconcile_job(job_id, once, store, queue)
    assert read_status(job_id, store).state == "incomplete"
    drain(queue)
    return job_id


def drain(queue: Queue) -> None:
    with queue.app.connection_for_read() as connection:
        while connection.default_channel.basic_get("shards.auto", no_ack=True):
            pass


def mend(work: Path) -> None:
    """The model no longer fails; the toy engine looks at no revision."""
    make_model(work / "model")


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert jobctl(["dlq", "list", *arguments, "-o", "json"]) == 0
    return list(json.loads(capsys.readouterr().out))


def test_a_dead_shard_is_listed_with_its_rows_its_last_attempt_and_why(
    job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = listed(capsys)
    assert (first["entry"], second["entry"]) == (f"{job}/0", f"{job}/1")
    facts = {key: second[key] for key in ("kind", "job_id", "shard_index", "first_row", "end_row", "attempt", "worker")}
    assert facts == {
        "kind": "shard",
        "job_id": job,
        "shard_index": 1,
        "first_row": 8,
        "end_row": 16,
        "attempt": 1,
        "worker": "w1",
    }
    assert second["reason"] == "nobody foresaw this"
    assert second["at"].startswith("20") and second["at"].endswith("+00:00")
    assert listed(capsys, job) == listed(capsys, "out") == [first, second]
    assert jobctl(["dlq", "list"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["ENTRY", "AT", "ROWS", "ATTEMPT", "WORKER", "REASON"]
    assert shown[2].split()[0] == f"{job}/1" and " 8-15 " in shown[2]


def test_show_says_where_to_look_further(job: str, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert jobctl(["dlq", "show", f"{job}/1"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (lines["rows"], lines["reason"]) == ("8-15", "nobody foresaw this")
    assert f"worker w1: {settings.data_dir}/logs" in lines["logs"]
    assert jobctl(["dlq", "show", f"{job}/1", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["logs"] == lines["logs"]


@pytest.mark.parametrize("entry", ["{job}/2", "{job}/9", "{job}/x", "nope/0", "message-0123", "nonsense"])
@pytest.mark.parametrize("verb", ["show", "replay", "purge"])
def test_what_is_no_dead_letter_is_not_found(
    entry: str, verb: str, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = entry.format(job=job)
    assert jobctl(["dlq", verb, entry, *(["--yes"] if verb == "purge" else [])]) == 3
    assert only_line(capsys) == f"jobctl: no dead letter {entry}; see jobctl dlq list"


def test_a_replayed_shard_gets_new_attempts_and_the_other_stays_dead(
    job: str, work: Path, once: Settings, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(once, str(once.redis_url))
    assert jobctl(["dlq", "replay", f"{job}/1"]) == 0
    assert only_line(capsys) == "jobctl: replayed 1 dead letter"
    assert read_status(job, store).state == "running"
    assert [(live.shard_index, live.delivery) for live in queue.live_deliveries()] == [(1, 2)]
    assert store.shard_states(job).dead.keys() == {0}
    with pytest.raises(SystemExit):
        run_queued(once, store, queue)
    reconcile_job(job, once, store, queue)
    assert read_status(job, store).state == "incomplete"
    assert [letter["attempt"] for letter in listed(capsys)] == [1, 2]


def test_replaying_all_of_a_job_finishes_it_once_what_was_wrong_is_mended(
    job: str, work: Path, once: Settings, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    mend(work)
    store = Store(once, str(once.redis_url))
    assert jobctl(["dlq", "replay", "--job", "out"]) == 0
    assert only_line(capsys) == "jobctl: replayed 2 dead letters"
    run_queued(once, store, queue)
    assert read_status(job, store).state == "finished"
    assert listed(capsys) == []


def test_the_record_of_a_replayed_job_does_not_expire(
    job: str, settings: Settings, redis_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    with redis_server.client() as client:
        keys = list(client.keys(f"{settings.key_prefix}job:{job}*"))
        assert min(client.ttl(key) for key in keys) > 0
        assert jobctl(["dlq", "replay", f"{job}/1"]) == 0
        keys = list(client.keys(f"{settings.key_prefix}job:{job}*"))
        assert {client.ttl(key) for key in keys} == {-1}


def test_a_purged_shard_is_forgotten_and_its_job_stays_incomplete_until_it_is_resumed(
    job: str, settings: Settings, store: Store, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    assert jobctl(["dlq", "purge", f"{job}/0", "--yes"]) == 0
    assert only_line(capsys) == "jobctl: purged 1 dead letter"
    assert [letter["entry"] for letter in listed(capsys)] == [f"{job}/1"]
    assert jobctl(["reconcile", job]) == 0
    assert only_line(capsys) == f"jobctl: {job}: nothing to do, it is incomplete"
    assert (read_status(job, store).state, queue.live_deliveries()) == ("incomplete", [])
    assert jobctl(["resume", "-q", "out"]) == 0
    assert sorted(live.shard_index for live in queue.live_deliveries()) == [0, 1]


def test_a_dead_shard_of_a_job_that_runs_is_not_purged(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert jobctl(["dlq", "replay", f"{job}/1"]) == 0
    capsys.readouterr()
    assert jobctl(["dlq", "purge", f"{job}/0", "--yes"]) == 2
    assert only_line(capsys) == f"jobctl: {job}/0 is of a job that has not ended; jobctl cancel {job} first"
    assert jobctl(["cancel", job]) == jobctl(["dlq", "purge", f"{job}/0", "--yes"]) == 0


def test_purging_asks_and_without_a_terminal_refuses(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert jobctl(["dlq", "purge", "--all"]) == 2
    assert "give --yes" in only_line(capsys)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, left in (("n", 2), ("y", 0)):
        monkeypatch.setattr("click.termui.visible_prompt_func", lambda _, answer=answer: answer)
        assert jobctl(["dlq", "purge", "--all"]) == (130 if left else 0)
        assert len(listed(capsys)) == left


@pytest.mark.parametrize("arguments", [[], ["job-1/0", "--all"], ["--job", "j", "--all"]])
def test_exactly_one_way_of_naming_entries_is_needed(
    arguments: list[str], broker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert jobctl(["dlq", "replay", *arguments]) == 2
    assert "name the entries, or give --job JOB or --all" in only_line(capsys)


class TestMessages:
    def test_a_message_for_another_shard_than_there_is_cannot_be_replayed(
        self, job: str, settings: Settings, store: Store, capsys: pytest.CaptureFixture[str]
    ) -> None:
        context, _ = counting_worker(settings, store)
        handle_message([ShardMessage(job_id=job, shard_index=7, delivery=1).to_json()], context)
        (letter,) = [one for one in listed(capsys, job) if one["kind"] == "message"]
        assert (letter["job_id"], letter["shard_index"]) == (job, 7)
        assert jobctl(["dlq", "replay", letter["entry"]]) == 2
        assert "has no shard 7; purge it" in only_line(capsys)
        assert jobctl(["dlq", "purge", letter["entry"], "--yes"]) == 0
        assert [one["kind"] for one in listed(capsys, job)] == ["shard", "shard"]

    def test_what_is_no_shards_message_cannot_be_replayed_and_does_not_hinder_others(
        self, job: str, settings: Settings, store: Store, queue: Queue, capsys: pytest.CaptureFixture[str]
    ) -> None:
        store.refuse_message("not json", "not a task's message")
        entry = listed(capsys)[-1]["entry"]
        assert jobctl(["dlq", "show", entry]) == 0
        assert "body    not json" in capsys.readouterr().out
        assert jobctl(["dlq", "replay", "--all"]) == 2
        said = capsys.readouterr().err.splitlines()
        assert said[0].startswith(f"jobctl: {entry} cannot be replayed: it is no message of a shard (not a task's")
        assert said[1] == "jobctl: replayed 2 dead letters"
        assert sorted(live.shard_index for live in queue.live_deliveries()) == [0, 1]

    def test_a_shards_message_that_no_task_took_has_its_job_looked_at(
        self,
        work: Path,
        broker: str,
        settings: Settings,
        queue: Queue,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """As where a worker of another version did not know the task."""
        hasty = settings.model_copy(update={"grace_seconds": 0.01})
        store, spec = Store(hasty, broker), toy_spec(work, 8)
        job_id = submit(spec, hasty, store, queue)
        drain(queue)
        body = json.dumps([[ShardMessage(job_id=job_id, shard_index=0, delivery=1).to_json()], {}, {"chain": None}])
        store.refuse_message(body, "no task specbatch.run_shards")
        (letter,) = listed(capsys)
        time.sleep(0.05)
        monkeypatch.setenv("JOBCTL_GRACE_SECONDS", "0.01")
        assert jobctl(["dlq", "replay", letter["entry"]]) == 0
        assert listed(capsys) == []
        run_queued(hasty, store, queue)
        check_output(spec)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('{"job_id": "j", "shard_index": 1, "delivery": 2, "schema_version": 1}', True),
        (json.dumps(['{"job_id": "j", "shard_index": 1, "delivery": 2}']), True),
        (json.dumps([['{"job_id": "j", "shard_index": 1, "delivery": 2}'], {}, {"chain": None}]), True),
        (json.dumps([[{"job_id": "j", "shard_index": 1, "delivery": 2}]]), False),
        ('{"job_id": "j", "shard_index": 1}', False),
        ("[" * 100_000, False),
        ("", False),
        ("3", False),
    ],
)
def test_a_shards_message_is_found_in_a_body(body: str, found: bool) -> None:
    message = ShardMessage(job_id="j", shard_index=1, delivery=2)
    assert message_in(body) == (message if found else None)
