"""`python -m workers`: one worker on one device. `jobctl up`, `run` and `worker` start it."""

import argparse
import os
import socket
import sys
from collections.abc import Sequence

from jobs.control.queue import QUEUES, queues_of
from jobs.settings import Settings
from schemas.errors import InvalidJob, SpecbatchError
from schemas.job import DeviceKinds
from workers.app import run_node
from workers.context import ENGINE_SESSION, WorkerOptions, check_session_name
from workers.devices.environment import prepare_environment

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    try:
        options = WorkerOptions(name=given.name, device=given.device, threads=given.threads, session=given.session)
        check_session_name(options.session)
        queues = checked_queues(given.queues) or queues_of(options.device)
        set_threads(options.threads)
        prepare_environment()
        return run_node(options, queues, Settings.from_environ())
    except SpecbatchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m workers", description=__doc__, allow_abbrev=False)
    parser.add_argument("--device", choices=DeviceKinds, default="auto", help="default: %(default)s")
    parser.add_argument("--queues", metavar="NAME,…", help="default: control, the device's shards and any device's")
    parser.add_argument("--threads", type=positive, metavar="N", help="CPU threads; default: the engine's choice")
    parser.add_argument("--name", default=f"worker-{socket.gethostname()}-{os.getpid()}", help="unique to the queue")
    parser.add_argument(
        "--session",
        default=ENGINE_SESSION,
        metavar="MODULE:FUNCTION",
        help="what loads a model: a workers.context.SessionFactory, for engines other than our own; "
        "default: %(default)s",
    )
    return parser


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def checked_queues(names: str | None) -> list[str]:
    """Raises InvalidJob for one that nothing is published to."""
    queues = names.split(",") if names else []
    unknown = [name for name in queues if name not in QUEUES]
    if unknown:
        raise InvalidJob(f"--queues: no queue {unknown[0]}; there are {', '.join(QUEUES)}")
    return queues


def set_threads(num_threads: int | None) -> None:
    """For the worker process to inherit: the libraries read these when they are loaded."""
    if num_threads is not None:
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(num_threads)))


if __name__ == "__main__":
    sys.exit(main())
