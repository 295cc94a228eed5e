"""jobctl beat: fires schedules and reconciles jobs."""

import logging
import socket

import click

from jobs.cli.connect import connected
from jobs.cli.interrupts import exit_code_of_interrupt, interruptible
from jobs.schedules.beat import run_beat


@click.command()
@click.option("--name", default=socket.gethostname, help="Unique to the broker; the host's name where not given.")
def command(name: str) -> int:
    """Fire schedules and reconcile jobs until SIGTERM or Ctrl-C.

    Several may run: one fires, the others stand by.
    """
    # A service: its log is how people see what it fired.
    logging.getLogger().setLevel(min(logging.getLogger().level, logging.INFO))
    with interruptible():
        try:
            with connected() as connection:
                run_beat(connection.settings, connection.redis_url, name)
        except KeyboardInterrupt as error:
            return exit_code_of_interrupt(error)
    return 0
