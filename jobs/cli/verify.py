"""jobctl verify: is a job's output what its receipts and its input say?"""

from collections.abc import Sequence

import click

from jobs.cli.errors import FAILURE
from jobs.cli.output import output_option, print_json
from jobs.cli.results import output_of
from jobs.plan.planning import load_plan
from jobs.storage.gc import collect_garbage, unknown_files
from jobs.storage.layout import Layout
from jobs.storage.problems import Problem
from jobs.storage.receipts import missing_rows
from jobs.storage.verify import Verification
from jobs.texts import counted


@click.command()
@click.argument("job")
@click.option("--without-input", is_flag=True, help="Do not look at the input, where it is gone.")
@output_option
def command(job: str, without_input: bool, output: str) -> int:
    """Re-read all of a job's output against its receipts and its input; exits 1 where anything is wrong.

    JOB is an id or an output directory. Of a job that is not finished, what is committed is verified.
    """
    layout = Layout(output_of(job))
    found = Verification(layout, load_plan(layout.output), with_input=not without_input)
    problems: list[Problem] = []
    for problem in found.problems():
        problems.append(problem)
        if output != "json":
            click.echo(f"{problem.kind}: {problem.path}: {problem.detail}")
    unfinished = unfinished_line(found)
    if output == "json":
        print_json(as_json(found, problems, unfinished))
    else:
        print_end(found, problems, unfinished)
    return FAILURE if problems or unfinished else 0


def unfinished_line(found: Verification) -> str | None:
    missing = missing_rows(found.plan, found.receipts)
    if missing:
        return "rows " + ", ".join(f"{rows.start}-{rows.stop - 1}" for rows in missing)
    if not found.layout.success_path.exists():
        return "every row is committed, the job is not; jobctl reconcile finishes it"
    return None


def counts(found: Verification) -> dict[str, int]:
    """`num_parts`, `num_rows`, …"""
    receipts = found.receipts.values()
    return {
        "num_parts": len(receipts),
        "num_rows": sum(receipt.num_rows for receipt in receipts),
        "num_samples": sum(receipt.num_samples for receipt in receipts),
        "num_bytes": sum(receipt.size_bytes for receipt in receipts),
    }


def in_words(counts: dict[str, int]) -> str:
    return ", ".join(counted(num, name.removeprefix("num_").removesuffix("s")) for name, num in counts.items())


def as_json(found: Verification, problems: Sequence[Problem], unfinished: str | None) -> dict[str, object]:
    listed = [{"kind": one.kind, "path": str(one.path), "detail": one.detail} for one in problems]
    ok = not problems and unfinished is None
    return {
        "ok": ok,
        **counts(found),
        "unfinished": unfinished,
        "problems": listed,
        "warnings": warnings(found, problems),
    }


def print_end(found: Verification, problems: Sequence[Problem], unfinished: str | None) -> None:
    for warning in warnings(found, problems):
        click.echo(f"jobctl: {warning}", err=True)
    if unfinished is not None:
        click.echo(f"unfinished: {unfinished}")
    click.echo(counted(len(problems), "problem") if problems else f"verified: {in_words(counts(found))}")


def warnings(found: Verification, problems: Sequence[Problem]) -> list[str]:
    """What hinders nobody: leftovers, and files that are not the job's."""
    if any(problem.kind == "receipt_damaged" for problem in problems):
        return []  # what is left over is told by receipts
    garbage = [f"{one.path} is left over; jobctl gc removes it" for one in collect_garbage(found.layout, dry_run=True)]
    told = {problem.path for problem in problems}
    return garbage + [f"{path} is not this job's" for path in unknown_files(found.layout) if path not in told]
