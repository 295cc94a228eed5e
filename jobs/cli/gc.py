"""jobctl gc: remove what ended attempts left in an output directory."""

import click

from jobs.cli.output import output_option, print_json
from jobs.cli.results import output_of
from jobs.plan.planning import load_plan
from jobs.storage.gc import collect_garbage, unknown_files
from jobs.storage.layout import Layout
from jobs.texts import counted


@click.command()
@click.argument("job")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@output_option
def command(job: str, dry_run: bool, output: str) -> None:
    """Remove what ended attempts left in a job's output directory; safe while the job runs.

    JOB is an id or an output directory. Saved rows of unfinished shards and files that are not the job's are kept.
    """
    layout = Layout(output_of(job))
    load_plan(layout.output)
    garbage = collect_garbage(layout, dry_run)
    unknown = [str(path) for path in unknown_files(layout)]
    num_bytes = sum(one.size_bytes for one in garbage)
    if output == "json":
        removed = [{"path": str(one.path), "size_bytes": one.size_bytes} for one in garbage]
        print_json({"dry_run": dry_run, "removed": removed, "num_bytes": num_bytes, "unknown": unknown})
        return
    for one in garbage:
        click.echo(str(one.path))
    done = "would remove" if dry_run else "removed"
    click.echo(f"{done} {counted(len(garbage), 'file')}, {counted(num_bytes, 'byte')}")
    for path in unknown:
        click.echo(f"jobctl: {path} is not this job's; it is kept", err=True)
