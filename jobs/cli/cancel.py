"""jobctl cancel: stop a job between rounds; what is finished is kept."""

import click

from jobs.cli.connect import connected, job_id_of
from jobs.control.state import JobRecord


@click.command()
@click.argument("job")
def command(job: str) -> None:
    """Stop a job; finished rows are kept, and `jobctl resume` or submitting it again goes on from there.

    JOB is an id or an output directory. Workers stop within about two seconds and the round that runs. Cancelling a
    job that has ended changes nothing, and says so.
    """
    with connected() as connection:
        job_id, store = job_id_of(job), connection.store
        before = store.job(job_id)
        stopped = store.cancel_job(job_id)
    click.echo(f"jobctl: {job_id} {_said(before, stopped)}", err=True)


def _said(before: JobRecord, stopped: bool) -> str:
    if before.failed is not None:
        return "had failed before"
    if before.cancelled_at is not None:
        return "was cancelled before"
    if before.ended is not None:
        return f"had ended before, {before.ended}"
    return "is cancelled" if stopped else "has just ended"
