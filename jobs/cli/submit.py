"""jobctl submit: plan a job and queue it."""

from pathlib import Path
from typing import Any

import click

from jobs.cli.connect import connected
from jobs.cli.next_steps import say_next_steps
from jobs.cli.options import job_options, new_option
from jobs.cli.spec import build_spec
from jobs.submit import submit


@click.command()
@job_options
@new_option
@click.option("-q", "--quiet", is_flag=True, help="Print the job's id and nothing else.")
def command(spec_file: Path | None, new: bool, quiet: bool, **given: Any) -> None:
    """Plan and queue a job; prints its id.

    The same options over the same input are the same job: submitting it again resumes it.
    """
    spec = build_spec(given, spec_file)
    with connected() as connection:
        job_id = submit(spec, connection.settings, connection.store, connection.queue, new=new)
        click.echo(job_id)
        if not quiet:
            say_next_steps(job_id, connection)
