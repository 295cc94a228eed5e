"""jobctl up: broker, workers and beat in the foreground, for jobs that are submitted from elsewhere."""

import time
from typing import NoReturn

import click

from jobs.cli.connect import Connection, connected
from jobs.cli.interrupts import exit_code_of_interrupt, interruptible
from jobs.cli.options import session_option, threads_option
from jobs.follow import OUTAGE_SECONDS
from jobs.local.children import Children
from jobs.local.embedded import EmbeddedBroker
from jobs.local.nodes import beat_child, worker_children
from jobs.texts import counted
from schemas.errors import QueueUnavailable
from schemas.job import DeviceKind, DeviceKinds

LOOK_SECONDS = 0.5


@click.command()
@click.option("--device", type=click.Choice(DeviceKinds), default="auto", show_default=True, help="For workers.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="One for each device to use.")
@threads_option
@session_option
def command(device: DeviceKind, workers: int, threads: int | None, session: str | None) -> int:
    """Keep a broker, workers and beat running until Ctrl-C or SIGTERM.

    Submit from another terminal with `jobctl submit`, and follow with `jobctl wait`. With several workers each has its
    share of the cores, or a card of its own.
    """
    with interruptible():
        try:
            _run_until_interrupted(device, workers, threads, session)
        except KeyboardInterrupt as error:
            click.echo("jobctl: stopped; jobs that are not finished go on at the next jobctl up", err=True)
            return exit_code_of_interrupt(error)


def _run_until_interrupted(device: DeviceKind, num_workers: int, threads: int | None, session: str | None) -> NoReturn:
    with connected() as connection, Children() as children:
        for child in worker_children(num_workers, device, connection.settings, session, threads):
            children.start(child)
        children.start(beat_child(connection.settings))
        _print_how_to_submit(connection, num_workers, device)
        _keep_up(connection, children)


def _keep_up(connection: Connection, children: Children) -> NoReturn:
    """Until an exception. Raises ChildDied, and QueueUnavailable where the broker is away for OUTAGE_SECONDS."""
    last_answer = time.monotonic()
    while True:
        children.keep_up()
        try:
            connection.broker.ensure()
            last_answer = time.monotonic()
        except QueueUnavailable:
            if time.monotonic() - last_answer > OUTAGE_SECONDS:
                raise
        time.sleep(LOOK_SECONDS)


def _print_how_to_submit(connection: Connection, num_workers: int, device: DeviceKind) -> None:
    logs = connection.settings.data_dir / "logs"
    url = "" if isinstance(connection.broker, EmbeddedBroker) else "JOBCTL_REDIS_URL=… "
    click.echo(
        f"jobctl: {counted(num_workers, 'worker')} on {device} and beat are up; logs in {logs}\n"
        f"jobctl: in another terminal: {url}jobctl submit prompts.parquet --model MODEL",
        err=True,
    )
