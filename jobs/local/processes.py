"""Child processes that end with their parent and write to a log file."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

STOP_GRACE_SECONDS = 15.0
_PR_SET_PDEATHSIG = 1


def spawn(
    command: Sequence[str],
    log_path: Path,
    environment: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    death_signal: int = signal.SIGKILL,
) -> subprocess.Popen[bytes]:
    """Starts `command` in a session of its own, its output appended to `log_path`.

    The child gets `death_signal` when the thread that called this ends, however it ends (Linux only). Its own
    session keeps a terminal's Ctrl-C away from it: the parent decides when a child stops.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            pass_fds=pass_fds,
            preexec_fn=_die_with_parent(death_signal),
        )


def _die_with_parent(signum: int) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    # Loaded here: the child, between fork and exec, must do as little as it can.
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def set_death_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signum)
        if os.getppid() != parent:
            os._exit(1)

    return set_death_signal


def stop(process: subprocess.Popen[bytes], grace_seconds: float = STOP_GRACE_SECONDS) -> None:
    """Ends the process and its whole session: SIGTERM, and SIGKILL when the grace is over."""
    send_signal(process, signal.SIGTERM)
    try:
        process.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        send_signal(process, signal.SIGKILL)
        process.wait()
    kill_session(process.pid)


def send_signal(process: subprocess.Popen[bytes], signum: int) -> None:
    """Unless it has ended, and its number may be another's."""
    if process.poll() is None:
        process.send_signal(signum)


def kill_session(pid: int) -> None:
    """A worker's child may outlive its parent; nothing of the session may go on writing."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # the session is empty, as it should be


def last_words(log_path: Path) -> str:
    """`: <the log's last line>`, or "" where there is none; a log may be long, so only its end is read."""
    if not log_path.exists():
        return ""
    with log_path.open("rb") as log:
        log.seek(max(0, log_path.stat().st_size - 4096))
        lines = log.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {last[:300]}" if last else ""
