"""jobctl wait: until a job ends, however it ends."""

import sys
import time

import click

from jobs.cli.connect import connected, job_id_of
from jobs.cli.options import Seconds
from jobs.control.status import exit_code_of
from jobs.follow import Follower
from jobs.local.children import Children
from jobs.report import progress, summary
from schemas.errors import SpecbatchError


class WaitTimeout(SpecbatchError):
    """The job goes on; only the waiting ended."""

    exit_code = 6


@click.command()
@click.argument("job")
@click.option("--timeout", type=Seconds(), metavar="SECONDS", help="Give up then, with exit code 6.")
def command(job: str, timeout: float | None) -> int:
    """Wait until a job ends, and exit with its code: 0 finished, 4 finished with row errors, 1 incomplete or beyond its
    --max-errors, 2 refused by a worker, 5 cancelled, 6 beyond its --timeout.

    JOB is an id or an output directory. Ctrl-C ends the waiting, not the job.
    """
    until = float("inf") if timeout is None else time.monotonic() + timeout
    with connected() as connection, progress(sys.stderr) as show:
        follower = Follower(
            connection.settings, connection.broker, connection.store, connection.queue, Children(), show
        )
        status = follower.follow(job_id_of(job), until)
    if status is None:
        raise WaitTimeout(f"{job} has not ended after {timeout:g} s; it goes on")
    click.echo(summary(status))
    return exit_code_of(status)
