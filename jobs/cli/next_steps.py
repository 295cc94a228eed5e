"""What submit and resume say beside a job's id: how much there is to do, and how to follow it."""

import click

from jobs.cli.connect import Connection
from jobs.control.status import JobStatus, read_status
from jobs.follow import no_worker_for, workers_for
from jobs.texts import counted


def say_next_steps(job_id: str, connection: Connection) -> None:
    """One line on stderr."""
    status, device = read_status(job_id, connection.store), connection.store.job(job_id).device
    what = f"{counted(status.num_rows, 'row')} in {counted(status.num_shards, 'shard')}, {status.state}"
    line = f"jobctl: {what}; output {status.output}"
    if status.is_terminal:
        click.echo(f"{line}{_why(status)}", err=True)
        return
    followed = f"follow with: jobctl wait {status.job_id}"
    click.echo(f"{line}; {followed if workers_for(device, connection.store) else no_worker_for(device)}", err=True)


def _why(status: JobStatus) -> str:
    return "" if status.message is None else f"; {status.message}"
