"""A broker with TLS and a user that is held to our keys: a whole job works, and nothing shows the password."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

pytest.importorskip("trustme", reason="the extra `dev` is not installed")

import trustme

from jobs.control.broker_facts import read_facts
from jobs.control.connection import connect
from jobs.control.queue import Queue
from jobs.control.store import Store
from jobs.settings import Settings
from schemas.errors import QueueUnavailable
from schemas.message import ShardMessage
from tests.integration.conftest import ROOT, wait_until
from tests.integration.terminal import TOY, Terminal, arguments_of
from tests.oracle import check_output
from tests.tls import TlsServer
from tests.toy import toy_spec

pytestmark = pytest.mark.services

PASSWORD = "hunter2/&?@secret"
A_MESSAGE = ShardMessage(job_id="j", shard_index=0, delivery=1)
QUOTED = "hunter2%2F%26%3F%40secret"
# From the page that tells people what to type.
(ACL_LINE,) = re.findall(r"^ACL SETUSER specbatch .*$", (ROOT / "docs/security.md").read_text(), re.MULTILINE)


@pytest.fixture
def server() -> Iterator[TlsServer]:
    """With the documented user, and its default user closed to who has no password."""
    started = TlsServer(trustme.CA())
    with started.admin() as admin:
        admin.execute_command(*ACL_LINE.replace("CHANGE-ME", PASSWORD).split())
    yield started
    started.stop()


@pytest.fixture
def url(server: TlsServer) -> str:
    return server.url("specbatch", PASSWORD)


def settings_of(url: str, tmp_path: Path) -> Settings:
    return Settings(redis_url=url, data_dir=tmp_path / "data")


def test_a_whole_job_and_a_schedule_run_and_the_password_is_shown_nowhere(
    server: TlsServer, url: str, tmp_path: Path
) -> None:
    terminal = Terminal(tmp_path / "data", JOBCTL_REDIS_URL=url)
    spec = toy_spec(tmp_path, 20, device="cpu")
    options = arguments_of(spec, tmp_path)[:2]
    up = terminal.start("--debug", "up", "--device", "cpu", *TOY)
    wait_until(lambda: "are up" in up.err, 60, "jobctl up")
    shown = [terminal.run("--debug", "submit", *options)]
    wait_until(lambda: list(tmp_path.glob("out/_SUCCESS")), 60, "the job is done")
    check_output(spec)
    scheduled = str(tmp_path / "out-{datetime}")
    add = ("schedule", "add", "often", "--cron", "* * * * * *", "--", "submit", *options, "--output", scheduled)
    shown.append(terminal.run(*add))
    wait_until(lambda: list(tmp_path.glob("out-*/_SUCCESS")), 60, "a tick's job is done")
    shown.append(terminal.run("schedule", "remove", "often"))
    for verb in (("status", spec.output), ("dlq", "list"), ("doctor",)):
        shown.append(terminal.start("--debug", *verb, "-o", "json"))
        shown[-1].end()
    command_lines = [part for process in terminal.processes() for part in process.cmdline()]
    titles = [process.name() for process in terminal.processes()]
    up.ctrl_c()
    shown.append(up)
    up.end()
    for broken in (url.replace(QUOTED, QUOTED + "x"), url.replace("localhost", "127.0.0.1"), url + "&x=1"):
        wrong = Terminal(tmp_path / "data", JOBCTL_REDIS_URL=broken)
        shown.append(wrong.start("--debug", "list"))
        assert shown[-1].end() in (2, 7)
    terminal.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10 and len(command_lines) > 10
    texts = [*command_lines, *titles, *(running.out + running.err for running in shown)]
    texts += [path.read_bytes().decode(errors="replace") for path in files]
    assert [text for text in texts if "hunter2" in text] == []
    with server.admin() as admin:
        keys = list(admin.scan_iter(count=1000))
        refused = admin.execute_command("ACL", "LOG")
    assert keys and all(key.startswith("specbatch:") for key in keys)
    assert {entry["reason"] for entry in refused} == {"auth"}


def test_the_user_is_held_to_our_keys_and_channels(server: TlsServer, url: str, tmp_path: Path) -> None:
    facts = read_facts(settings_of(url, tmp_path), url)
    assert (facts.refused_command, facts.info is None, facts.clock_seconds is None) == (None, False, False)
    others: list[tuple[Any, ...]] = [("GET", "other"), ("SET", "other", "x"), ("BRPOP", "other", "1")]
    others += [("KEYS", "*"), ("SCAN", "0"), ("FLUSHALL",), ("CONFIG", "GET", "*"), ("ACL", "LIST"), ("DBSIZE",)]
    others += [("PUBLISH", "other", "x"), ("SCRIPT", "FLUSH"), ("CLIENT", "LIST"), ("MONITOR",), ("SHUTDOWN",)]
    others += [("EVAL", "return redis.call('GET', 'other')", "0"), ("RENAME", "specbatch:a", "other")]
    with connect(url) as client:
        for command in others:
            with pytest.raises(redis.ResponseError, match=r"permissions|NOPERM|can't run this command|script"):
                client.execute_command(*command)


@pytest.mark.parametrize(
    ("host", "days", "says"),
    [
        ("localhost", None, "self-signed certificate"),
        ("other.example", 1, "Hostname mismatch"),
        ("localhost", -1, "certificate has expired"),
    ],
)
def test_a_certificate_that_is_not_the_brokers_is_refused_in_one_line(
    host: str, days: int | None, says: str, tmp_path: Path
) -> None:
    """By both libraries. days: it is valid for; None: of an authority that nobody knows."""
    authority = trustme.CA()
    server = TlsServer(authority, host, datetime.now(UTC) + timedelta(days=days or 1))
    if days is None:
        trustme.CA().cert_pem.write_to_path(server.ca_file)
    url = server.url("default", "the-password-is-not-sent")
    settings = settings_of(url, tmp_path)
    queue = Queue(settings, url)
    try:
        for call in (Store(settings, url).ping, lambda: queue.enqueue_shard(A_MESSAGE, "cpu"), queue.live_deliveries):
            with pytest.raises(QueueUnavailable) as caught:
                call()
            line = str(caught.value)
            assert line.startswith(f"no broker at rediss://localhost:{server.port}/0: its certificate is refused: ")
            assert says in line and "\n" not in line and "password" not in line
    finally:
        server.stop()
