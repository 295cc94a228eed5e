"""jobctl schedule: a submit at the times of a cron line."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from jobs.cli.connect import connected
from jobs.cli.output import output_option, print_listing
from jobs.cli.spec import build_spec
from jobs.cli.submit import command as submit_command
from jobs.input.paths import resolve_paths
from jobs.plan.models import locate_model
from jobs.schedules.entries import Schedules
from jobs.schedules.schedule import run_tick
from jobs.schedules.spec import LastTick, Schedule
from jobs.schedules.ticks import tick_name
from schemas.errors import InvalidJob
from schemas.job import JobSpec


@click.group(no_args_is_help=False)
def command() -> None:
    """Submit a job at the times of a cron line.

    A beat must run to fire it: `jobctl up` has one, `jobctl beat` is one.
    """


@command.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.option("--cron", required=True, help='Five cron fields, like "0 2 * * *"; a sixth one is seconds.')
@click.option("--tz", default="UTC", show_default=True, help="Time zone of the cron line, like Europe/Berlin.")
@click.argument("submit_arguments", nargs=-1, required=True, metavar="-- submit INPUT [OPTIONS]")
def add(name: str, cron: str, tz: str, submit_arguments: tuple[str, ...]) -> None:
    """Add a schedule. What follows -- is a submit, checked at once.

    \b
    jobctl schedule add nightly --cron "0 2 * * *" --tz Europe/Berlin -- \\
        submit "prompts/{date}.parquet" --output "completions/{date}" --model MODEL

    {date} and {datetime} in INPUT and --output are the tick's own, in the schedule's time zone. The same tick is the
    same job, however often it fires. Ticks missed while no beat ran: the newest one is made up for.
    """
    spec = resolve_paths(_parse_submit(list(submit_arguments)))
    spec = spec.model_copy(update={"model": locate_model(spec.model)})
    schedule = Schedule.from_mapping({"name": name, "cron": cron, "tz": tz, "spec": spec.model_dump(mode="json")})
    with connected() as connection:
        Schedules(connection.settings, connection.redis_url).add(schedule)
    next_tick = schedule.cron_line.after(datetime.now(UTC))
    click.echo(f"{name}: next at {next_tick.isoformat()}", err=True)


@command.command("list")
@output_option
def list_schedules(output: str) -> None:
    """List schedules with their next tick and what became of the last one."""
    with connected() as connection:
        listed = Schedules(connection.settings, connection.redis_url).all()
    print_listing([_shown(schedule, last_tick) for schedule, last_tick in listed], output)


@command.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove a schedule; the jobs it made stay."""
    with connected() as connection:
        Schedules(connection.settings, connection.redis_url).remove(name)
    click.echo(f"{name}: removed", err=True)


@command.command("run-now")
@click.argument("name")
def run_now(name: str) -> None:
    """Submit the schedule's job for this moment; prints the job's id."""
    with connected() as connection:
        schedule = Schedules(connection.settings, connection.redis_url).get(name)
        tick = tick_name(datetime.now(schedule.cron_line.zone))
        click.echo(run_tick(name, tick, connection.settings, connection.redis_url))


def _parse_submit(arguments: list[str]) -> JobSpec:
    """The spec of `submit …`. Raises InvalidJob, and click's own errors, as submit would."""
    if arguments[0] != "submit":
        raise InvalidJob(f"after -- comes submit with its options, not {arguments[0]!r}")
    given: dict[str, Any] = submit_command.make_context("jobctl submit", arguments[1:]).params
    for name in ("quiet", "new"):
        if given.pop(name):
            raise InvalidJob(f"a schedule's submit takes no --{name}")
    spec_file: Path | None = given.pop("spec_file")
    return build_spec(given, spec_file)


def _shown(schedule: Schedule, last_tick: LastTick | None) -> dict[str, object]:
    return {
        "name": schedule.name,
        "cron": schedule.cron,
        "tz": schedule.tz,
        "next": schedule.cron_line.after(datetime.now(UTC)).isoformat(),
        "input": schedule.spec.input,
        "output": schedule.spec.output,
        "last_tick": last_tick.tick if last_tick else None,
        "last_job": last_tick.job_id if last_tick else None,
        "last_error": last_tick.error if last_tick else None,
    }
