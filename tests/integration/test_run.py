"""`jobctl run`, and what may come between: errors in rows, Ctrl-C, SIGKILL, other terminals, dead workers."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs.cli import jobctl
from jobs.local import children, nodes
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipts
from schemas.columns import result_fields
from schemas.job import JobSpec
from schemas.receipt import Receipt
from tests.integration.conftest import wait_until
from tests.integration.terminal import Terminal, arguments_of
from tests.oracle import check_output
from tests.toy import toy_spec

pytestmark = pytest.mark.services


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path / "data")
    yield opened
    opened.close()


def receipts_of(spec: JobSpec) -> dict[int, Receipt]:
    return read_receipts(Layout(Path(spec.output)))


def slow_spec(directory: Path, num_rows: int = 24, **options: object) -> JobSpec:
    """Shards of 4 rows that take 0.6 s each."""
    return toy_spec(directory, num_rows, shard_rows=4, round_seconds=0.3, **options)


def test_one_command_makes_a_finished_job_and_the_same_again_shows_it_at_once(
    terminal: Terminal, tmp_path: Path
) -> None:
    spec = toy_spec(tmp_path, 20)
    arguments = arguments_of(spec, tmp_path)
    done = terminal.run("run", *arguments)
    table = check_output(spec)
    assert "20 ok, 0 failed, of 20" in done.out and "tokens/s" in done.out and spec.output in done.out
    assert str(table["completion"][2]) in done.out
    assert "(starting workers)" in done.err and "20 of 20 rows" in done.err
    assert "\x1b" not in done.out + done.err
    assert terminal.processes() == []

    before = receipts_of(spec), sorted((terminal.data_dir / "logs").glob("worker-*"))
    began = time.monotonic()
    again = terminal.run("run", *arguments)
    assert again.out == done.out
    assert "was finished before; nothing was run" in again.err
    assert time.monotonic() - began < 10
    assert (receipts_of(spec), sorted((terminal.data_dir / "logs").glob("worker-*"))) == before

    assert terminal.json("status", spec.output)["state"] == "finished"
    rows = terminal.json("results", spec.output, "--head", "0")
    assert [row["completion"] for row in rows] == table["completion"].to_pylist()


def test_bad_rows_become_errors_and_exit_code_4(terminal: Terminal, tmp_path: Path) -> None:
    spec = toy_spec(tmp_path, 5, prompts=["fine", None, "", "too long", "fine too"])
    done = terminal.run("run", *arguments_of(spec, tmp_path), code=4)
    assert "2 ok, 3 failed, of 5" in done.out
    check_output(spec)
    failed = terminal.json("results", spec.output, "--errors")
    assert [row["row_index"] for row in failed] == [1, 2, 3]
    assert all(row["error_message"] and row["completion"] is None for row in failed)


def test_no_rows_make_a_finished_job_with_an_empty_part_of_all_columns(terminal: Terminal, tmp_path: Path) -> None:
    spec = toy_spec(tmp_path, 1).model_copy(update={"output": str(tmp_path / "out")})
    pq.write_table(pq.read_table(spec.input).slice(0, 0), spec.input)
    done = terminal.run("run", *arguments_of(spec, tmp_path))
    assert "0 ok, 0 failed, of 0" in done.out
    (part,) = Path(spec.output).glob("part-*.parquet")
    schema = pq.read_schema(part)
    assert schema.names == ["prompt", "carried", *(field.name for field in result_fields(False))]
    assert [schema.field(field.name).type for field in result_fields(False)] == [f.type for f in result_fields(False)]
    assert (Path(spec.output) / "_SUCCESS").exists()


def test_ctrl_c_stops_cleanly_and_the_same_command_goes_on(terminal: Terminal, tmp_path: Path) -> None:
    spec = slow_spec(tmp_path)
    arguments = arguments_of(spec, tmp_path)
    first = terminal.start("run", *arguments)
    terminal.wait_mid_shard(spec)
    first.ctrl_c()
    assert first.end() == 130
    assert f"To go on: jobctl run --spec {tmp_path / 'spec.json'}" in first.err.splitlines()[-1]
    assert "Traceback" not in first.err
    assert terminal.processes() == []
    kept = receipts_of(spec)
    assert 0 < len(kept) < 6

    terminal.run("run", *arguments)
    check_output(spec)
    assert kept.items() <= receipts_of(spec).items()


def test_a_killed_run_leaves_nothing_that_hinders_the_next(terminal: Terminal, tmp_path: Path) -> None:
    spec = slow_spec(tmp_path)
    arguments = arguments_of(spec, tmp_path)
    first = terminal.start("run", *arguments)
    terminal.wait_mid_shard(spec)
    assert len(terminal.processes()) >= 4
    first.process.send_signal(signal.SIGKILL)
    assert first.end() == -signal.SIGKILL
    wait_until(lambda: terminal.processes() == [], 10, "workers and server end with their run")
    kept = receipts_of(spec)
    assert 0 < len(kept) < 6

    terminal.run("run", *arguments)
    check_output(spec)
    assert kept.items() <= receipts_of(spec).items()
    # Proves that the kill landed in the middle of a shard.
    assert max(receipt.attempt for receipt in receipts_of(spec).values()) == 2


def test_other_terminals_answer_while_it_works_and_can_cancel_it(terminal: Terminal, tmp_path: Path) -> None:
    spec = slow_spec(tmp_path, 400)
    running = terminal.start("run", *arguments_of(spec, tmp_path))
    terminal.wait_mid_shard(spec)
    status = terminal.json("status", spec.output)
    assert status["state"] == "running" and 0 < status["num_ok"] < 400
    assert [job["state"] for job in terminal.json("list")] == ["running"]
    assert [row["status"] for row in terminal.json("results", spec.output, "--head", "4")] == ["ok"] * 4
    terminal.run("wait", spec.output, "--timeout", "0.2", code=6)
    terminal.run("cancel", status["job_id"])
    assert running.end() == 5
    assert "cancelled" in running.out
    assert terminal.run("wait", status["job_id"], code=5).out.startswith("job")
    assert 0 < len(receipts_of(spec)) < 100


def test_a_run_goes_on_when_the_one_that_owns_the_broker_ends(terminal: Terminal, tmp_path: Path) -> None:
    owned, attached = slow_spec(tmp_path / "one", 8), slow_spec(tmp_path / "two", 40)
    owner = terminal.start("run", *arguments_of(owned, tmp_path / "one"))
    terminal.wait_mid_shard(owned)
    other = terminal.start("run", *arguments_of(attached, tmp_path / "two"))
    assert owner.end() == 0, owner.err
    assert other.process.poll() is None
    assert other.end() == 0, other.err
    check_output(owned)
    check_output(attached)


def test_two_workers_share_a_job_and_a_killed_one_is_replaced(terminal: Terminal, tmp_path: Path) -> None:
    spec = slow_spec(tmp_path, 64)
    running = terminal.start("run", *arguments_of(spec, tmp_path), "--workers", "2")
    wait_until(lambda: len({r.worker for r in _receipts(spec)}) == 2, 60, "both workers have committed a shard")
    node = next(p for p in terminal.processes() if p.cmdline()[1:3] == ["-m", "workers"])
    node.kill()
    wait_until(lambda: not node.is_running() or node.status() == "zombie", 10, "the worker is dead")
    assert running.end() == 0, running.err
    check_output(spec)


def _receipts(spec: JobSpec) -> list[Receipt]:
    started = (Path(spec.output) / "_jobctl" / "receipts").is_dir()
    return list(receipts_of(spec).values()) if started else []


def test_a_model_that_the_engine_refuses_ends_the_run_with_its_reason(terminal: Terminal, tmp_path: Path) -> None:
    spec = toy_spec(tmp_path, 4, refuse="toys of this family are not for batches")
    done = terminal.run("run", *arguments_of(spec, tmp_path), code=2)
    assert "toys of this family are not for batches" in done.out


def test_a_worker_that_cannot_start_ends_the_run_and_names_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = toy_spec(tmp_path, 4)
    monkeypatch.setenv("JOBCTL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(children, "FIRST_BACKOFF_SECONDS", 0.01)
    command = nodes.worker_command("cpu", None, None, "no.such:session")
    monkeypatch.setattr(nodes, "worker_command", lambda *_: [command[0], "-c", "raise SystemExit('no card')"])
    assert jobctl(["run", *arguments_of(spec, tmp_path)]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    (log,) = (tmp_path / "data" / "logs").glob("worker-*.log")
    assert line.startswith("jobctl: worker 0 ended") and f"{log}: no card" in line


def test_up_works_on_what_others_submit_until_it_is_stopped(terminal: Terminal, tmp_path: Path) -> None:
    up = terminal.start("up", "--device", "cpu", *arguments_of(toy_spec(tmp_path, 1), tmp_path)[2:])
    wait_until(lambda: "jobctl submit" in up.err, 30, "up says how to submit")
    spec = toy_spec(tmp_path, 20)
    submit = ["submit", "-q", *arguments_of(spec, tmp_path)[:2]]
    job_id = terminal.run(*submit).out.strip()
    assert "20 ok" in terminal.run("wait", job_id).out
    check_output(spec)
    assert terminal.run(*submit).out.strip() == job_id
    terminal.run("healthcheck", "worker")
    wait_until(lambda: terminal.start("healthcheck", "beat").end() == 0, 30, "beat ticks")
    up.process.send_signal(signal.SIGTERM)
    assert up.end() == 143
    assert terminal.processes() == []
    assert json.loads((Path(spec.output) / "_manifest.json").read_text())["num_ok"] == 20
