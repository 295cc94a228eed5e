"""jobctl healthcheck: for a container's health check; 0 alive, 1 silent, 7 no broker."""

import socket

import click

from jobs.cli.connect import connected
from jobs.schedules.beat import is_beating
from schemas.errors import SpecbatchError


class NotAlive(SpecbatchError):
    """The process that was asked about gives no sign of life."""


@click.group(no_args_is_help=False)
def command() -> None:
    """Say whether a worker or beat on this host is alive; exits 0 or 1."""


@command.command()
@click.option("--name", help="The worker's name; any worker of this host where not given.")
def worker(name: str | None) -> None:
    """Whether a worker sent its heartbeat of late."""
    host = socket.gethostname()
    with connected() as connection:
        alive = [w for w in connection.store.workers() if (w.name == name if name else w.hostname == host)]
    if not alive:
        raise NotAlive(f"no heartbeat of {f'worker {name}' if name else f'a worker on {host}'}")


@command.command()
@click.option("--name", default=socket.gethostname, help="The beat's name; the host's where not given.")
def beat(name: str) -> None:
    """Whether beat has ticked of late."""
    with connected() as connection:
        alive = is_beating(connection.settings, connection.redis_url, name)
    if not alive:
        raise NotAlive(f"no tick of beat {name}")
