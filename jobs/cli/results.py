"""jobctl results: rows of a job's output, also while it still runs."""

import json
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import click

from jobs.cli.connect import connected
from jobs.cli.output import table
from jobs.plan.planning import load_plan
from jobs.report import short_rows
from jobs.storage.layout import Layout
from jobs.storage.results import read_results
from schemas.plan import Plan


@click.command()
@click.argument("job")
@click.option(
    "--head", type=click.IntRange(0, 2**31 - 1), default=10, show_default=True, help="Rows to show; 0 is all."
)
@click.option("--errors", is_flag=True, help="Only rows that failed.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "path"]),
    default="table",
    show_default=True,
    help="Short columns, whole rows, or the output directory's path.",
)
def command(job: str, head: int, errors: bool, output: str) -> None:
    """Show rows of a job's output in input order.

    JOB is an id or an output directory. A job that still runs shows the rows that are committed.
    """
    layout = Layout(output_of(job))
    plan = load_plan(layout.output)
    if output == "path":
        click.echo(str(layout.output))
        return
    rows = islice(_rows(layout, plan, errors), head or None)
    if output == "json":
        _print_json(rows)
    else:
        _print_table(rows, plan.spec.output_prefix)


def output_of(job: str) -> Path:
    """Raises NotFound."""
    if Path(job).is_dir():
        return Path(job).absolute()
    with connected() as connection:
        return Path(connection.store.job(job).output)


def _rows(layout: Layout, plan: Plan, errors: bool) -> Iterator[dict[str, Any]]:
    status = plan.spec.output_prefix + "status"
    for batch in read_results(layout, plan):
        for row in batch.to_pylist():
            if not errors or row[status] == "error":
                yield row


def _print_table(rows: Iterator[Mapping[str, Any]], prefix: str) -> None:
    shown = short_rows(rows, prefix)
    if shown:
        click.echo(table(shown, list(shown[0])))


def _print_json(rows: Iterator[Mapping[str, Any]]) -> None:
    """One array, a row a line, written as it is read."""
    click.echo("[", nl=False)
    for index, row in enumerate(rows):
        click.echo((",\n " if index else "\n ") + json.dumps(_plain(row), ensure_ascii=False, default=str), nl=False)
    click.echo("\n]")


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity; carried columns may."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
