"""jobctl reconcile: one look at a job, now."""

import click

from jobs.cli.connect import connected, job_id_of
from jobs.control.reconcile import reconcile_job
from jobs.control.status import JobStatus, read_status
from jobs.texts import counted


@click.command()
@click.argument("job")
def command(job: str) -> None:
    """Look at a job once: enqueue shards that are missing and on nobody's way, or finish it. Says what it did.

    JOB is an id or an output directory. beat, `jobctl up`, `run` and `wait` do so every few seconds.
    """
    with connected() as connection:
        job_id, store = job_id_of(job), connection.store
        before = read_status(job_id, store).state
        num_enqueued = reconcile_job(job_id, connection.settings, store, connection.queue)
        after = read_status(job_id, store)
    click.echo(f"jobctl: {job_id}: {_done(num_enqueued, after.state != before, after)}", err=True)


def _done(num_enqueued: int, has_changed: bool, status: JobStatus) -> str:
    if num_enqueued:
        return f"{counted(num_enqueued, 'shard')} enqueued"
    if has_changed and status.is_terminal:
        why = f": {status.message}" if status.message else ""
        return f"it is {status.state} now{why}"
    return f"nothing to do, it is {status.state}"
