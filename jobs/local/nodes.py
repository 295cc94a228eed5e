"""Worker nodes as child processes of `jobctl run` and `up`: commands, names, cores, cards, logs."""

import os
import socket
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from jobs.local.children import Child
from jobs.settings import Settings
from schemas.errors import SpecbatchError
from schemas.job import DeviceKind

NUM_LOGS_KEPT = 20
# What pins a process to one card; it must be set before the libraries of the card are loaded.
CARD_VARIABLES: Mapping[DeviceKind, tuple[str, ...]] = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "hpu": ("HLS_MODULE_ID", "HABANA_VISIBLE_MODULES"),
}


class WorkerPackagesMissing(SpecbatchError):
    """This installation is the client alone. The user installs the extra that the message names."""


def worker_command(device: DeviceKind, name: str | None, threads: int | None, session: str | None) -> list[str]:
    """`python -m workers …`. Raises WorkerPackagesMissing where it could not start."""
    if session is None and find_spec("torch") is None:
        raise WorkerPackagesMissing('a worker needs torch and transformers: pip install "specbatch[worker]"')
    options = {"--device": device, "--name": name, "--threads": threads, "--session": session}
    given = ((option, str(value)) for option, value in options.items() if value is not None)
    return [sys.executable, "-m", "workers", *(part for pair in given for part in pair)]


def worker_children(
    num_workers: int, device: DeviceKind, settings: Settings, session: str | None, threads: int | None = None
) -> list[Child]:
    """Nodes that share this machine: each has its share of the cores, and a card of its own where there are cards.

    threads: cores for all of them together; None is all there are.
    """
    logs = settings.data_dir / "logs"
    prune_logs(logs)
    share = max(1, (threads or num_cores()) // max(1, num_workers))
    environ = settings.child_environ()
    return [
        Child(
            name=f"worker {index}",
            command=worker_command(device, f"{socket.gethostname()}-{os.getpid()}-{index}", share, session),
            log_path=logs / f"worker-{os.getpid()}-{index}.log",
            environment={**environ, **card_environ(device, index, num_workers, environ)},
        )
        for index in range(num_workers)
    ]


def beat_child(settings: Settings) -> Child:
    return Child(
        name="beat",
        command=[sys.executable, "-m", "jobs.cli", "beat"],
        log_path=settings.data_dir / "logs" / "beat.log",
        environment=settings.child_environ(),
    )


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def card_environ(device: DeviceKind, index: int, num_workers: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Pins worker `index` to one card; where CUDA_VISIBLE_DEVICES or its like names some, to its own one of those.

    A single worker is left alone: it may have been pinned from outside.
    """
    if num_workers == 1:
        return {}
    visible = {name: environ[name].split(",") for name in CARD_VARIABLES.get(device, ()) if environ.get(name)}
    cards = {name: visible.get(name, []) for name in CARD_VARIABLES.get(device, ())}
    return {name: listed[index % len(listed)] if listed else str(index) for name, listed in cards.items()}


def prune_logs(logs: Path) -> None:
    """Removes all but the newest logs of workers that ended."""
    by_age = sorted(logs.glob("worker-*.log"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in by_age[NUM_LOGS_KEPT:]:
        path.unlink(missing_ok=True)
