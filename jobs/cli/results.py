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
@click.option("--partial", is_flag=True, help="Also saved rows of shards that are not committed.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "path"]),
    default="table",
    show_default=True,
    help="Short columns, whole rows, or the output directory's path.",
)
def command(job: str, head: int, errors: bool, partial: bool, output: str) -> None:
    """Show rows of a job's output in input order.

    JOB is an id or an output directory. A job that still runs, or was stopped, shows the rows that are committed.
    """
    layout = Layout(output_of(job))
    plan = load_plan(layout.output)
    if output == "path":
        click.echo(str(layout.output))
        return
    rows = islice(_rows(layout, plan, errors, partial), head or None)
    num_rows = _print_json(rows) if output == "json" else _print_table(rows, plan.spec.output_prefix)
    if not num_rows:
        click.echo(f"jobctl: {plan.job_id} {_nothing(layout, errors, partial)}", err=True)


def _nothing(layout: Layout, errors: bool, partial: bool) -> str:
    what = "failed row" if errors else "row"
    if layout.success_path.exists():
        return f"has no {what}"
    if partial:
        return f"has no {what} that is committed or saved"
    return f"has no committed {what}; with --partial those that are saved are shown too"


def output_of(job: str) -> Path:
    """Raises NotFound."""
    if Path(job).is_dir():
        return Path(job).absolute()
    with connected() as connection:
        return Path(connection.store.job(job).output)


def _rows(layout: Layout, plan: Plan, errors: bool, partial: bool) -> Iterator[dict[str, Any]]:
    status = plan.spec.output_prefix + "status"
    for batch in read_results(layout, plan, saved_too=partial):
        for row in batch.to_pylist():
            if not errors or row[status] == "error":
                yield row


def _print_table(rows: Iterator[Mapping[str, Any]], prefix: str) -> int:
    """How many rows there were."""
    shown = short_rows(rows, prefix)
    if shown:
        click.echo(table(shown, list(shown[0])))
    return len(shown)


def _print_json(rows: Iterator[Mapping[str, Any]]) -> int:
    """One array, a row a line, written as it is read; how many rows there were."""
    num_rows = 0
    for num_rows, row in enumerate(rows, start=1):
        before = "[\n " if num_rows == 1 else ",\n "
        click.echo(before + json.dumps(_plain(row), ensure_ascii=False, default=str), nl=False)
    click.echo("\n]" if num_rows else "[\n]")
    return num_rows


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity; carried columns may."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
