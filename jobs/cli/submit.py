"""jobctl submit: plan a job and queue it."""

from pathlib import Path
from typing import Any

import click

from jobs.cli.connect import connected
from jobs.cli.options import job_options, new_option
from jobs.cli.spec import build_spec
from jobs.control.status import JobStatus, read_status
from jobs.follow import no_worker_for, workers_for
from jobs.submit import submit
from schemas.job import DeviceKind


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
        status = read_status(job_id, connection.store)
        has_workers = bool(workers_for(spec.device, connection.store))
    click.echo(job_id)
    if not quiet:
        click.echo(_next_steps(status, spec.device, has_workers), err=True)


def _next_steps(status: JobStatus, device: DeviceKind, has_workers: bool) -> str:
    line = f"jobctl: {status.num_rows} rows in {status.num_shards} shards, {status.state}; output {status.output}"
    if status.is_terminal:
        return line
    hint = f"follow with: jobctl wait {status.job_id}" if has_workers else no_worker_for(device)
    return f"{line}; {hint}"
