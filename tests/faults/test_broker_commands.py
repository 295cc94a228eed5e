"""Processes that die just before or just after a command reaches the broker: nothing of it is lost or done twice."""

import signal
from pathlib import Path

import pytest

from tests.faults.conftest import FaultyCluster
from tests.faults.shim import fault_environ
from tests.integration.conftest import wait_until
from tests.toy import toy_spec

# What is in the bytes of the command, by what it does.
OF_THE_NODE = {"received": "ZADD", "acknowledged": "ZREM"}
OF_THE_WORKER = {"lease taken": "\r\ntake\r\n", "lease renewed": "\r\nrenew\r\n", "lease given back": "\r\nrelease\r\n"}
OF_THE_CLIENT = {"registered": "SADD", "claimed": "\r\nclaim\r\n", "published": "LPUSH"}
WHENS = ("kill_before", "kill_after")
NODE, CHILD = "--session", "spawn_main"  # in their command lines


def cases(steps: dict[str, str], in_ci: set[tuple[str, str]]) -> list[object]:
    """(step's bytes, when); those of `in_ci` by (step's name, when)."""
    return [
        pytest.param(sent, when, id=f"{when} {name}", marks=[pytest.mark.ci] if (name, when) in in_ci else [])
        for name, sent in steps.items()
        for when in WHENS
    ]


@pytest.mark.parametrize("sent, when", cases(OF_THE_NODE, {("acknowledged", "kill_before")}))
def test_a_node_that_dies_at_a_command(faulty: FaultyCluster, tmp_path: Path, shim: Path, sent: str, when: str) -> None:
    spec = toy_spec(tmp_path, 24, round_seconds=0.05)
    environ = fault_environ(shim, when, faulty.mark, send=sent, process=NODE, nth=2)
    (node,) = faulty.start_faulty("w1", environ=environ)
    job_id = faulty.submit(spec)
    assert node.wait() == -signal.SIGKILL
    assert faulty.mark.exists()
    assert faulty.status(job_id).state != "finished"
    faulty.start_faulty("w2")
    assert faulty.finish(spec, job_id) < 2


@pytest.mark.parametrize("sent, when", cases(OF_THE_WORKER, {("lease given back", "kill_before")}))
def test_a_worker_process_that_dies_at_a_command(
    faulty: FaultyCluster, tmp_path: Path, shim: Path, sent: str, when: str
) -> None:
    spec = toy_spec(tmp_path, 24, round_seconds=0.3)
    environ = fault_environ(shim, when, faulty.mark, send=sent, process=CHILD)
    (node,) = faulty.start_faulty("w1", environ=environ)
    job_id = faulty.submit(spec)
    wait_until(faulty.mark.exists, 20, "the fault lands")
    faulty.finish(spec, job_id)
    assert "signal 9 (SIGKILL)" in node.log


@pytest.mark.parametrize(
    "sent, when", cases(OF_THE_CLIENT, {("registered", "kill_after"), ("published", "kill_before")})
)
def test_a_submit_that_dies_at_a_command(
    faulty: FaultyCluster, tmp_path: Path, shim: Path, sent: str, when: str
) -> None:
    spec = toy_spec(tmp_path, 24)
    faulty.start_faulty("w1")
    (tmp_path / "spec.json").write_text(spec.to_json())
    environ = fault_environ(shim, when, faulty.mark, send=sent)
    client = faulty.jobctl("submit", "--spec", str(tmp_path / "spec.json"), environ=environ)
    assert client.wait(30) == -signal.SIGKILL, client.communicate()
    assert faulty.mark.exists()
    faulty.finish(spec, faulty.submit(spec))


@pytest.mark.parametrize("sent, when", cases(OF_THE_CLIENT, set()))
def test_a_resume_that_dies_at_a_command(
    faulty: FaultyCluster, tmp_path: Path, shim: Path, sent: str, when: str
) -> None:
    spec = toy_spec(tmp_path, 24)
    job_id = faulty.submit(spec)
    with faulty.store._redis as client:
        client.flushall()
    environ = fault_environ(shim, when, faulty.mark, send=sent)
    resume = faulty.jobctl("resume", spec.output, environ=environ)
    assert resume.wait(30) == -signal.SIGKILL, resume.communicate()
    assert faulty.mark.exists()
    again = faulty.jobctl("resume", spec.output)
    assert again.wait(30) == 0, again.communicate()
    faulty.start_faulty("w1")
    faulty.finish(spec, job_id)


@pytest.mark.parametrize(
    "sent, when", cases({"ticked": "ticks", "claimed": "\r\nclaim\r\n", "published": "LPUSH"}, set())
)
def test_a_beat_that_dies_at_a_command(faulty: FaultyCluster, tmp_path: Path, shim: Path, sent: str, when: str) -> None:
    spec = toy_spec(tmp_path, 24)
    job_id = faulty.submit(spec)
    with faulty.store._redis as client:
        client.delete(f"{faulty.settings.key_prefix}shards.auto")  # the messages are lost: beat has to send new ones
    first = faulty.jobctl("beat", "--name", "b1", environ=fault_environ(shim, when, faulty.mark, send=sent))
    assert first.wait(30) == -signal.SIGKILL, first.communicate()
    assert faulty.mark.exists()
    second = faulty.jobctl("beat", "--name", "b2")
    try:
        faulty.start_faulty("w1", reconcile=False)
        faulty.finish(spec, job_id)
    finally:
        second.kill()
        second.wait()
