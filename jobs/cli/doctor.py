"""jobctl doctor: whether broker, workers, beat and directories are as jobs need them."""

from pathlib import Path

import click

from jobs.cli.output import output_option, print_json
from jobs.doctor.examination import examine
from jobs.settings import Settings


@click.command()
@click.argument("output_dir", required=False, type=click.Path(path_type=Path))
@output_option
def command(output_dir: Path | None, output: str) -> int:
    """Check broker, workers, beat and directories: a line each, ok, warn or fail, with what to do.

    OUTPUT_DIR is a job's output directory, or one to be: its file system is tried out. Exits 1 when something fails.
    """
    findings = []
    for finding in examine(Settings.from_environ(), output_dir):
        findings.append(finding)
        if output == "table":
            click.echo(f"{finding.level:4}  {finding.check}: {finding.message}")
    if output == "json":
        print_json([finding.model_dump(mode="json") for finding in findings])
    return int(any(finding.level == "fail" for finding in findings))
