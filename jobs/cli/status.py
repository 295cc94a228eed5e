"""jobctl status: how one job stands."""

from pathlib import Path

import click

from jobs.cli.connect import connected
from jobs.cli.output import output_option, print_json
from jobs.control.status import JobStatus, read_status, read_status_of
from jobs.control.store import Store
from jobs.plan.planning import load_plan
from jobs.report import progress_line, summary


@click.command()
@click.argument("job")
@output_option
def command(job: str, output: str) -> None:
    """Show one job: state, rows, tokens, acceptance, and what went wrong.

    JOB is an id or an output directory.
    """
    with connected() as connection:
        status = status_of(job, connection.store)
        has_workers = bool(connection.store.workers())
    if output == "json":
        print_json(status.model_dump(mode="json"))
    elif status.is_terminal:
        click.echo(summary(status))
    else:
        waiting = "" if has_workers else "no worker is running; start one: jobctl up, or give the run command again"
        click.echo(f"{summary(status)}\nprogress    {progress_line(status, waiting)}")


def status_of(job: str, store: Store) -> JobStatus:
    """Of an id, or of an output directory, whether or not the broker remembers its job. Raises NotFound."""
    directory = Path(job)
    if not directory.is_dir():
        return read_status(job, store)
    job_id = load_plan(directory).job_id
    return read_status(job_id, store) if store.has_job(job_id) else read_status_of(directory)
