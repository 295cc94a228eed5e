"""An input that is damaged on disk after its job was planned: its rows are errors, all others are delivered."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.control.queue import Queue
from jobs.control.store import Store
from jobs.plan.planning import load_plan
from jobs.settings import Settings
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipts
from jobs.storage.verify import Verification
from schemas.job import JobSpec
from tests.toy import toy_spec
from tests.workers.attempts import submitted
from workers.context import WorkerContext
from workers.tasks import handle_message

pytestmark = pytest.mark.services


def damaged_job(directory: Path, schema: pa.Schema) -> JobSpec:
    """24 rows in three shards and two row groups of 12; then the carried text of row 13 changes."""
    spec = toy_spec(directory, 24)
    table = pq.read_table(spec.input).cast(schema)
    plain = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table, spec.input, row_group_size=12, **plain)
    return spec


def damage(spec: JobSpec) -> None:
    path = Path(spec.input)
    path.write_bytes(path.read_bytes().replace(b"c13", b"c99", 1))


def test_rows_that_cannot_be_read_are_errors_and_the_job_is_finished(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue, context: WorkerContext
) -> None:
    spec = damaged_job(tmp_path, pa.schema([("prompt", pa.string()), ("carried", pa.string())]))
    messages = submitted(spec, settings, store, queue)
    damage(spec)
    for message in messages:
        handle_message([message.to_json()], context)
    table = pq.read_table(spec.output)
    assert table["row_index"].to_pylist() == list(range(24))
    assert table["error_kind"].to_pylist() == [None] * 12 + ["unreadable_row"] * 12
    assert table["carried"].to_pylist() == [f"c{row}" for row in range(12)] + [None] * 12
    assert table["prompt"].to_pylist() == [f"prompt {row}" for row in range(24)]
    assert "column 'carried' of row group 1 of" in table["error_message"].to_pylist()[12]
    layout = Layout(Path(spec.output))
    assert list(Verification(layout, load_plan(layout.output)).problems()) == []


def test_a_column_without_nulls_costs_its_shards_and_no_others(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue, context: WorkerContext
) -> None:
    fields = [("prompt", pa.string()), pa.field("carried", pa.string(), nullable=False)]
    spec = damaged_job(tmp_path, pa.schema(fields))
    messages = submitted(spec, settings, store, queue)
    damage(spec)
    for message in messages:
        handle_message([message.to_json()], context)
    assert set(read_receipts(Layout(Path(spec.output)))) == {0}
    errors = store.shard_states(messages[0].job_id).errors
    assert set(errors) == {1, 2}
    assert all("column 'carried' of row group 1 of" in error for error in errors.values())
