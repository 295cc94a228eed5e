"""jobctl retry: failed rows are generated again, into the same output."""

import click

from jobs.cli.connect import connected
from jobs.cli.next_steps import say_next_steps
from jobs.cli.results import output_of
from jobs.retry import Retried, retry
from jobs.texts import counted


@click.command()
@click.argument("job")
@click.option("--failed-only", is_flag=True, help="Only failed rows; shards that were given up stay so.")
@click.option("-q", "--quiet", is_flag=True, help="Print the job's id and nothing else.")
def command(job: str, failed_only: bool, quiet: bool) -> None:
    """Generate failed rows of a job again, and those of damaged parts, into the same output; prints its id.

    JOB is an output directory, wherever it was moved, or an id. Rows that are ok stay as they are, and until a shard is
    done again its old part stays in place. Shards that were given up get new attempts too. A job that runs is refused:
    wait for it or cancel it first.
    """
    output = output_of(job)
    with connected() as connection:
        retried = retry(output, connection.settings, connection.store, connection.queue, failed_only)
        click.echo(retried.job_id)
        if quiet:
            return
        click.echo(f"jobctl: {_said(retried)}", err=True)
        if retried.num_shards or retried.num_missing:
            say_next_steps(retried.job_id, connection)


def _said(retried: Retried) -> str:
    parts = []
    if retried.num_shards:
        parts.append(f"{counted(retried.num_rows, 'row')} in {counted(retried.num_shards, 'shard')}")
    if retried.num_missing:
        parts.append(f"{counted(retried.num_missing, 'shard')} that had not been done")
    return (
        f"{' and '.join(parts)} to do again"
        if parts
        else "nothing to do again, no row has failed and no part is damaged"
    )
