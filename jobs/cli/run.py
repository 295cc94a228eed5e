"""jobctl run: a whole job on this machine, from one command."""

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from jobs.cli.connect import Connection, connected
from jobs.cli.interrupts import exit_code_of_interrupt, interruptible
from jobs.cli.options import job_options, new_option, session_option, threads_option
from jobs.cli.output import table
from jobs.cli.spec import build_spec
from jobs.control.status import JobStatus, exit_code_of, read_status
from jobs.follow import Follower
from jobs.input.paths import output_dir
from jobs.local.children import Children
from jobs.local.nodes import worker_children
from jobs.plan.planning import load_plan
from jobs.report import progress, sample_rows, short_rows, summary
from jobs.storage.layout import Layout
from jobs.submit import submit
from schemas.errors import QueueUnavailable
from schemas.job import JobSpec


@click.command()
@job_options
@new_option
@click.option("--workers", type=click.IntRange(min=0), default=1, show_default=True, help="Workers to start here.")
@threads_option
@session_option
def command(
    spec_file: Path | None, new: bool, workers: int, threads: int | None, session: str | None, **given: Any
) -> int:
    """Run a job from start to end: broker, workers, progress, summary.

    \b
    jobctl run prompts.parquet --model HuggingFaceTB/SmolLM2-135M-Instruct

    Ctrl-C stops cleanly; the same command again goes on where it stopped. Without JOBCTL_REDIS_URL an embedded broker
    runs meanwhile.
    """
    spec = build_spec(given, spec_file)
    with interruptible():
        try:
            return run_job(spec, new, workers, threads, session)
        except KeyboardInterrupt as error:
            return _say_how_to_go_on(error)


def run_job(spec: JobSpec, new: bool, num_workers: int, threads: int | None, session: str | None) -> int:
    with connected() as connection, Children() as children:
        workers = worker_children(num_workers, spec.device, connection.settings, session, threads)
        status = _submit(spec, new, connection)
        job_id = status.job_id
        if status.is_terminal:
            stands = "was finished before" if status.state == "finished" else f"is {status.state}"
            click.echo(f"jobctl: {job_id} {stands}; nothing was run (--new: another job)", err=True)
        else:
            for worker in workers:
                children.start(worker)
            status = _follow(job_id, connection, children)
        print_summary(status)
    return exit_code_of(status)


def _submit(spec: JobSpec, new: bool, connection: Connection) -> JobStatus:
    """Once more where the broker was another jobctl's and has just ended with it. What is saved by then is the job."""
    try:
        return _submit_once(spec, new, connection)
    except QueueUnavailable:
        connection.broker.ensure()
        is_saved = Layout(output_dir(spec)).plan_path.exists()
        return _submit_once(spec, new and not is_saved, connection)


def _submit_once(spec: JobSpec, new: bool, connection: Connection) -> JobStatus:
    job_id = submit(spec, connection.settings, connection.store, connection.queue, new=new)
    return read_status(job_id, connection.store)


def _follow(job_id: str, connection: Connection, children: Children) -> JobStatus:
    with progress(sys.stderr) as show:
        follower = Follower(connection.settings, connection.broker, connection.store, connection.queue, children, show)
        status = follower.follow(job_id)
    assert status is not None
    return status


def print_summary(status: JobStatus) -> None:
    output = Path(status.output)
    plan = load_plan(output)
    click.echo(summary(status))
    rows = short_rows(sample_rows(Layout(output), plan), plan.spec.output_prefix)
    if rows:
        click.echo("\n" + table(rows, list(rows[0])))


def _say_how_to_go_on(error: KeyboardInterrupt) -> int:
    click.echo(
        "jobctl: stopped; finished shards are kept. To go on: " + shlex.join(["jobctl", *sys.argv[1:]]), err=True
    )
    return exit_code_of_interrupt(error)
