"""jobctl list: all jobs that the broker remembers."""

from collections.abc import Mapping

import click

from jobs.cli.connect import connected
from jobs.cli.output import output_option, print_listing
from jobs.control.state import JobRecord
from jobs.control.status import JobStatus, read_status
from jobs.control.store import Store
from schemas.errors import InvalidJob, NotFound

COLUMNS = ("job_id", "state", "rows_done", "num_failed", "created_at", "output")


@click.command()
@output_option
def command(output: str) -> None:
    """List all jobs, the oldest first."""
    with connected() as connection:
        listed = [describe(record, connection.store) for record in connection.store.jobs()]
    if output == "table":
        listed = [{**item, "rows_done": _rows_done(item)} for item in listed]
    print_listing(listed, output, COLUMNS)


def describe(record: JobRecord, store: Store) -> dict[str, object]:
    """As `jobctl status` has it. A job whose directory was removed or damaged is listed all the same, as `lost`."""
    try:
        return read_status(record.job_id, store).model_dump(mode="json")
    except (NotFound, InvalidJob) as error:
        known = {name: getattr(record, name, None) for name in JobStatus.model_fields}
        return {**known, "state": "lost", "message": str(error)}


def _rows_done(item: Mapping[str, object]) -> str | None:
    return None if item["num_rows_done"] is None else f"{item['num_rows_done']}/{item['num_rows']}"
