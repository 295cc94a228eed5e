"""jobctl list: all jobs that the broker remembers."""

import click

from jobs.cli.connect import connected
from jobs.cli.output import output_option, print_listing
from jobs.control.state import JobRecord
from jobs.control.status import read_status
from jobs.control.store import Store
from schemas.errors import InvalidJob, NotFound

COLUMNS = ("job_id", "state", "rows_done", "num_failed", "created_at", "output")


@click.command()
@output_option
def command(output: str) -> None:
    """List all jobs, the oldest first."""
    with connected() as connection:
        listed = [describe(record, connection.store) for record in connection.store.jobs()]
    print_listing(listed, output, COLUMNS)


def describe(record: JobRecord, store: Store) -> dict[str, object]:
    """A job whose output directory was removed or damaged is listed all the same, as `lost`."""
    facts = record.model_dump(mode="json")
    try:
        status = read_status(record.job_id, store)
    except (NotFound, InvalidJob) as error:
        return {**facts, "state": "lost", "rows_done": None, "num_failed": None, "message": str(error)}
    done = f"{status.num_rows_done}/{status.num_rows}"
    return {**facts, **status.model_dump(mode="json"), "rows_done": done}
