"""jobctl cancel: stop a job between rounds; what is finished is kept."""

import click

from jobs.cli.connect import connected, job_id_of


@click.command()
@click.argument("job")
def command(job: str) -> None:
    """Stop a job; finished shards are kept, and submitting it again resumes it.

    JOB is an id or an output directory.
    """
    with connected() as connection:
        job_id = job_id_of(job)
        stopped = connection.store.cancel_job(job_id)
    click.echo(f"jobctl: {job_id} {'is cancelled' if stopped else 'had ended before'}", err=True)
