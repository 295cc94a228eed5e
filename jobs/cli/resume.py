"""jobctl resume: a job goes on from its output directory, whatever the broker remembers."""

from typing import Any

import click

from jobs.cli.connect import connected
from jobs.cli.next_steps import say_next_steps
from jobs.cli.options import limit_options
from jobs.cli.results import output_of
from jobs.cli.spec import limits_of
from jobs.control.status import read_status_of
from jobs.resume import resume


@click.command()
@click.argument("job")
@limit_options
@click.option("-q", "--quiet", is_flag=True, help="Print the job's id and nothing else.")
def command(job: str, quiet: bool, **given: Any) -> None:
    """Let a job go on where it stopped; prints its id.

    JOB is an output directory, wherever it was moved, or an id. It needs nothing from the broker: plan, receipts and
    finished rows are in the directory. It is refused where the input, the plan or the model is not as it was. A
    cancelled or failed job runs again, and dead shards get new attempts; a finished job is left as it is. A limit that
    is not given stays; --timeout counts from now.
    """
    limits, output = limits_of(given), output_of(job)
    was_finished = read_status_of(output).state == "finished"
    with connected() as connection:
        job_id = resume(output, connection.settings, connection.store, connection.queue, limits)
        click.echo(job_id)
        if quiet:
            return
        if was_finished:
            click.echo(f"jobctl: {job_id} had finished before; nothing to do", err=True)
        else:
            say_next_steps(job_id, connection)
