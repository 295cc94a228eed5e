"""An attempt at a shard that is retried: only rows that failed are generated, saved and resumed."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs.control.queue import Queue
from jobs.control.store import Store
from jobs.plan.planning import load_plan
from jobs.retry import retry
from jobs.settings import Settings
from jobs.storage.checkpoint import append_rows, read_finished
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_shard_receipts
from schemas.errors import ShardRetryable
from schemas.job import JobSpec
from schemas.message import ShardMessage
from tests.oracle import check_output
from tests.storage import failed_outcome
from tests.toy import toy_spec
from tests.workers.attempts import resumed, session_of, spec_of, submitted
from workers.attempt import Attempt
from workers.context import WorkerContext
from workers.publish import Generated
from workers.shard import run_shard

pytestmark = pytest.mark.services

NUM_ROWS, FAILING = 12, (0, 3, 4, 5, 6, 11)


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    return toy_spec(tmp_path, NUM_ROWS, n=2, shard_rows=NUM_ROWS, save_token_ids=True)


@pytest.fixture
def message(spec: JobSpec, settings: Settings, store: Store, queue: Queue, context: WorkerContext) -> ShardMessage:
    """Of the second generation of the job's shard; the session has generated nothing since."""
    (first,) = submitted(spec, settings, store, queue)
    session = session_of(context, spec_of(first, store))
    session.failing = FAILING
    run_shard(first, context)
    session.failing, session.samples = (), []
    retry(Path(spec.output), settings, store, queue)
    newest = store.shard_states(first.job_id).deliveries[0]
    return ShardMessage(job_id=first.job_id, shard_index=0, delivery=newest)


def test_its_receipt_sums_both_generations(
    spec: JobSpec, message: ShardMessage, store: Store, context: WorkerContext
) -> None:
    session = session_of(context, spec_of(message, store))
    run_shard(message, context)
    assert sorted(session.samples) == [(row, sample) for row in FAILING for sample in (0, 1)]
    old, new = read_shard_receipts(Layout(Path(spec.output)), 0)
    assert (new.num_rows, new.num_samples, new.num_ok, new.num_failed) == (NUM_ROWS, 2 * NUM_ROWS, 2 * NUM_ROWS, 0)
    assert (old.num_samples, old.num_failed, new.attempt, new.generation) == (18, 6, 2, 1)
    assert new.statistics.num_completion_tokens == 2 * NUM_ROWS * spec.max_new_tokens
    assert new.statistics.generate_seconds > old.statistics.generate_seconds
    # Batches of four samples, two rounds each: 12 samples at first, 12 again.
    assert new.speculation == {"rounds_by_k": {"none": {"0": 12}}}
    check_output(spec)


def test_its_progress_is_over_the_rows_that_failed(
    message: ShardMessage, store: Store, context: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    session = session_of(context, spec_of(message, store))

    def look(attempt: Attempt, generated: Generated) -> None:
        seen.append((attempt.lease.progress.num_rows_done, attempt.lease.progress.num_rows))
        raise ShardRetryable("enough")

    monkeypatch.setattr("workers.shard.publish_shard", look)
    with pytest.raises(ShardRetryable):
        run_shard(message, context)
    assert (seen, len(session.samples)) == ([(len(FAILING), len(FAILING))], 2 * len(FAILING))


def test_an_attempt_that_ends_early_is_resumed_where_it_stopped(
    spec: JobSpec, message: ShardMessage, settings: Settings, store: Store, context: WorkerContext
) -> None:
    session = session_of(context, spec_of(message, store))
    layout, shard = Layout(Path(spec.output)), load_plan(Path(spec.output)).shards[0]

    def stop_after_row_0(row_index: int) -> None:
        if row_index == 0:
            raise ShardRetryable("enough")

    session.after_row = stop_after_row_0
    with pytest.raises(ShardRetryable):
        run_shard(message, context)
    saved = read_finished(layout, shard, generation=1)
    assert set(saved) == set(session.samples) and saved
    assert read_finished(layout, shard) == {}
    session.after_row, session.samples = lambda row_index: None, []
    run_shard(resumed(message, settings, store), context)
    assert sorted(session.samples) == sorted({(row, sample) for row in FAILING for sample in (0, 1)} - saved.keys())
    check_output(spec)
    assert list(layout.wips_dir.iterdir()) == []


def test_failures_that_an_earlier_generation_saved_are_not_taken_over(
    spec: JobSpec, message: ShardMessage, context: WorkerContext
) -> None:
    layout, shard = Layout(Path(spec.output)), load_plan(Path(spec.output)).shards[0]
    append_rows(layout, shard, 1, [failed_outcome(row) for row in FAILING])  # by one that did not hear of the commit
    run_shard(message, context)
    table = check_output(spec)
    assert set(table["status"].to_pylist()) == {"ok"}


def test_a_part_that_was_damaged_meanwhile_is_made_anew_as_a_whole(
    spec: JobSpec, message: ShardMessage, store: Store, context: WorkerContext
) -> None:
    part = Path(spec.output) / "part-00000.parquet"
    num_rows = load_plan(Path(spec.output)).shards[0].num_rows
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    run_shard(message, context)
    assert len(set(session_of(context, spec_of(message, store)).generated)) == num_rows
    assert set(check_output(spec)["status"].to_pylist()) == {"ok"}


def test_carried_columns_come_from_the_replaced_part(
    spec: JobSpec, message: ShardMessage, context: WorkerContext
) -> None:
    part = Path(spec.output) / "part-00000.parquet"
    before = pq.read_table(part)
    run_shard(message, context)
    after = pq.read_table(part)
    assert after.schema.equals(before.schema, check_metadata=True)
    kept = [row for row in before.to_pylist() if row["row_index"] not in FAILING]
    assert [row for row in after.to_pylist() if row["row_index"] not in FAILING] == kept
