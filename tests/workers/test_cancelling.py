"""A job cancelled in the middle of a shard: how soon it stops, and what is kept."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from jobs.cli import jobctl
from jobs.control.queue import Queue
from jobs.control.state import ShardProgress
from jobs.control.status import read_status
from jobs.control.store import Store
from jobs.plan.planning import load_plan
from jobs.settings import Settings
from jobs.storage.checkpoint import read_finished
from jobs.storage.layout import Layout
from jobs.submit import submit
from schemas.message import ShardMessage
from tests.integration.conftest import wait_until
from tests.jobs.working import counting_worker, run_queued
from tests.oracle import check_output
from tests.toy import toy_spec
from workers.tasks import handle_message

pytestmark = pytest.mark.services

ROUND_SECONDS = 0.3
HEARD_SECONDS = 2.0


def test_a_cancelled_shard_stops_after_its_round_keeps_its_rows_and_goes_on_from_there(
    tmp_path: Path,
    settings: Settings,
    store: Store,
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("JOBCTL_REDIS_URL", str(settings.redis_url))
    prompts = ["too long", *(f"prompt {row}" for row in range(1, 32))]
    spec = toy_spec(tmp_path, 32, prompts, shard_rows=32, round_seconds=ROUND_SECONDS)
    patient = settings.model_copy(update={"lease_seconds": 15.0, "checkpoint_seconds": 60.0})  # as they are in use
    job_id = submit(spec, patient, Store(patient, str(settings.redis_url)), queue)
    context, sessions = counting_worker(patient, Store(patient, str(settings.redis_url)))
    message = ShardMessage(job_id=job_id, shard_index=0, delivery=1)
    worker = threading.Thread(target=handle_message, args=[[message.to_json()], context])
    worker.start()

    def progress() -> ShardProgress:
        return store.shard_states(job_id).running.get(0, ShardProgress(worker=""))

    wait_until(lambda: progress().num_rows_done > 4, 20, "the shard is under way")
    assert progress().num_failed == 1
    assert jobctl(["cancel", job_id]) == 0
    cancelled_at = time.monotonic()
    worker.join(20)
    assert time.monotonic() - cancelled_at < HEARD_SECONDS + ROUND_SECONDS

    assert read_status(job_id, store).state == "cancelled"
    generated = sessions[0].generated
    saved = read_finished(Layout(Path(spec.output)), load_plan(Path(spec.output)).shards[0])
    assert sorted(saved) == [(0, 0), *((row, 0) for row in sorted(generated))]
    assert 4 < len(generated) < 31
    capsys.readouterr()
    partial = partial_results(spec.output, capsys)
    assert [row["row_index"] for row in partial] == sorted([0, *generated])

    assert jobctl(["resume", "-q", spec.output]) == 0
    rest = run_queued(patient, store, queue)
    assert sorted([*generated, *rest]) == list(range(1, 32))
    check_output(spec)
    capsys.readouterr()
    assert jobctl(["results", spec.output, "--head", "0", "-o", "json"]) == 0
    final = json.loads(capsys.readouterr().out)
    assert [row for row in partial if row not in final] == []


def partial_results(output: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Of a job without a committed row."""
    assert jobctl(["results", output, "--head", "0", "-o", "json"]) == 0
    nothing = capsys.readouterr()
    assert json.loads(nothing.out) == []
    assert "has no committed row; with --partial those that are saved are shown too" in nothing.err
    assert jobctl(["results", output, "--partial", "--head", "0", "-o", "json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return list(json.loads(shown.out))
