"""jobctl dlq: dead letters, which are shards that were given up and messages that nobody could do."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from jobs.cli.connect import Connection, connected, job_id_of
from jobs.cli.output import output_option, print_json, print_listing
from jobs.control.dead_letters import DeadLetter, find_letter, list_letters, purge, replay
from jobs.report import one_line
from jobs.settings import Settings
from jobs.texts import counted
from schemas.errors import InvalidJob, NotFound

COLUMNS = ("entry", "at", "rows", "attempt", "worker", "reason")
F = TypeVar("F", bound=Callable[..., Any])


@click.group(no_args_is_help=False)
def command() -> None:
    """Dead letters: shards that were given up (JOB/SHARD), and messages that nobody could do (message-ID)."""


@command.command("list")
@click.argument("job", required=False)
@output_option
def list_entries(job: str | None, output: str) -> None:
    """List dead letters of all jobs, or of JOB, an id or an output directory."""
    with connected() as connection:
        letters = list_letters(connection.store, job_id_of(job) if job is not None else None)
    describe = _shown if output == "table" else DeadLetter.model_dump
    print_listing([describe(letter) for letter in letters], output, COLUMNS)


@command.command()
@click.argument("entry")
@output_option
def show(entry: str, output: str) -> None:
    """Show all of one dead letter, and where to look further."""
    with connected() as connection:
        letter = find_letter(entry, connection.store)
        logs = _where_logs_are(letter, connection.settings)
    if output == "json":
        print_json({**letter.model_dump(mode="json"), "logs": logs})
        return
    facts = {name: value for name, value in letter.model_dump(mode="json").items() if value is not None}
    for name in ("first_row", "end_row"):
        facts.pop(name, None)
    lines = {**facts, **({"rows": _rows(letter)} if letter.first_row is not None else {}), "logs": logs}
    width = max(map(len, lines))
    click.echo("\n".join(f"{name.ljust(width)}  {value}" for name, value in lines.items()))


def _entries(verb: F) -> F:
    for decorate in (
        click.option("--all", "everything", is_flag=True, help="All dead letters."),
        click.option("--job", metavar="JOB", help="All dead letters of a job, an id or an output directory."),
        click.argument("entries", nargs=-1, metavar="[ENTRY]..."),
    ):
        verb = decorate(verb)
    return verb


@command.command("replay")
@_entries
def replay_entries(entries: tuple[str, ...], job: str | None, everything: bool) -> int:
    """Give dead shards new attempts; other dead shards of their jobs stay dead."""
    with connected() as connection:
        letters = _chosen(connection, entries, job, everything)
        settings, store, queue = connection.settings, connection.store, connection.queue
        return _each(letters, "replayed", lambda letter: replay(letter, settings, store, queue))


@command.command("purge")
@_entries
@click.option("--yes", is_flag=True, help="Do not ask.")
def purge_entries(entries: tuple[str, ...], job: str | None, everything: bool, yes: bool) -> int:
    """Forget dead letters. A shard's job must have ended; it stays incomplete, and `jobctl resume` tries again."""
    with connected() as connection:
        letters = _chosen(connection, entries, job, everything)
        if letters and not yes:
            _confirm(f"purge {counted(len(letters), 'dead letter')}?")
        return _each(letters, "purged", lambda letter: purge(letter, connection.store))


def _chosen(connection: Connection, entries: Sequence[str], job: str | None, everything: bool) -> list[DeadLetter]:
    """Raises InvalidJob unless one of the three ways to name them is used."""
    if sum((bool(entries), job is not None, everything)) != 1:
        raise InvalidJob("name the entries, or give --job JOB or --all; see jobctl dlq list")
    if entries:
        return [find_letter(entry, connection.store) for entry in dict.fromkeys(entries)]
    return list_letters(connection.store, job_id_of(job) if job is not None else None)


def _each(letters: Sequence[DeadLetter], done: str, act: Callable[[DeadLetter], None]) -> int:
    """One that is refused does not stop the others; the exit code is then that of the first."""
    refusals: list[InvalidJob | NotFound] = []
    for letter in letters:
        try:
            act(letter)
        except (InvalidJob, NotFound) as error:
            refusals.append(error)
            click.echo(f"jobctl: {error}", err=True)
    num_done = len(letters) - len(refusals)
    if num_done or not refusals:
        click.echo(f"jobctl: {done} {counted(num_done, 'dead letter')}", err=True)
    return refusals[0].exit_code if refusals else 0


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise InvalidJob("purging cannot be undone, and nobody can be asked here; give --yes")
    click.confirm(f"jobctl: {question}", abort=True, err=True)


def _shown(letter: DeadLetter) -> dict[str, object]:
    return {**letter.model_dump(mode="json"), "rows": _rows(letter), "reason": one_line(letter.reason)}


def _rows(letter: DeadLetter) -> str | None:
    if letter.first_row is None or letter.end_row is None:
        return None
    return f"{letter.first_row}-{letter.end_row - 1}" if letter.end_row > letter.first_row else "none"


def _where_logs_are(letter: DeadLetter, settings: Settings) -> str:
    logs = f"{settings.data_dir / 'logs'} where `jobctl run` or `up` started it"
    return f"those of worker {letter.worker}: {logs}" if letter.worker else f"those of the workers: {logs}"
