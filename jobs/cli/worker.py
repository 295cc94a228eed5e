"""jobctl worker: one worker against a broker that others run."""

import os

import click

from jobs.cli.options import session_option
from jobs.local.nodes import worker_command
from jobs.settings import Settings
from schemas.errors import QueueUnavailable
from schemas.job import DeviceKind, DeviceKinds


@click.command()
@click.option("--device", type=click.Choice(DeviceKinds), default="auto", show_default=True, help="What to run on.")
@click.option("--threads", type=click.IntRange(min=1), help="Cores to use; all, where not given.")
@click.option("--name", help="Unique to the broker; made of host and process id where not given.")
@session_option
def command(device: DeviceKind, threads: int | None, name: str | None, session: str | None) -> None:
    """Run one worker until SIGTERM or Ctrl-C: it then saves its finished rows and gives its shard back.

    It needs JOBCTL_REDIS_URL, and sees inputs and outputs under the paths that jobs were submitted with.
    """
    if Settings.from_environ().redis_url is None:
        raise QueueUnavailable(
            "JOBCTL_REDIS_URL is not set; name the broker, or use `jobctl up` for one with workers here"
        )
    worker = worker_command(device, name, threads, session)
    # Takes this process's place, so that its signals and its exit code are the worker's own.
    os.execv(worker[0], worker)
