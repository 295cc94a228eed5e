"""A real redis-server that speaks TLS only, with certificates of our own making."""

import socket
import subprocess
import tempfile
import time
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

import redis
import trustme

from tests.services import redis_binary

ADMIN_PASSWORD = "the-servers-own-secret"
START_SECONDS = 20.0


class TlsServer:
    """host, until: whom and how long its certificate is for. Its default user's password is ADMIN_PASSWORD."""

    def __init__(self, authority: trustme.CA, host: str = "localhost", until: datetime | None = None) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="tls-")
        self.directory = Path(self._directory.name)
        self.ca_file = self.directory / "ca.pem"
        authority.cert_pem.write_to_path(self.ca_file)
        certificate = authority.issue_cert(host, not_after=until)
        certificate.private_key_pem.write_to_path(self.directory / "key.pem")
        certificate.cert_chain_pems[0].write_to_path(self.directory / "cert.pem")
        self.port = _free_port()
        self._process = self._start()

    def url(self, user: str, password: str, host: str = "localhost") -> str:
        return f"rediss://{user}:{quote(password, safe='')}@{host}:{self.port}/0?ssl_ca_certs={self.ca_file}"

    def admin(self) -> redis.Redis:
        return redis.Redis.from_url(self.url("default", ADMIN_PASSWORD), decode_responses=True)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(10)
        self._directory.cleanup()

    def _start(self) -> subprocess.Popen[bytes]:
        options = {
            "port": "0",
            "tls-port": str(self.port),
            "bind": "127.0.0.1",
            "tls-cert-file": str(self.directory / "cert.pem"),
            "tls-key-file": str(self.directory / "key.pem"),
            "tls-ca-cert-file": str(self.ca_file),
            "tls-auth-clients": "no",
            "requirepass": ADMIN_PASSWORD,
            "dir": str(self.directory),
            "save": "",
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        process = subprocess.Popen([redis_binary(), *arguments], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not _listens(self.port):
            assert process.poll() is None and time.monotonic() < deadline, "redis-server does not start"
            time.sleep(0.02)
        return process


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
