"""Publishing a shard that is generated: its part is written aside, checked, and committed with its receipt."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.clock import utc_now
from jobs.storage.checkpoint import clear
from jobs.storage.commit import commit_shard, new_staged_path
from schemas.errors import LeaseLost
from schemas.generation import RowOutcome, SampleKey
from schemas.receipt import Receipt, ShardStatistics
from workers.attempt import Attempt
from workers.context import Session
from workers.kept_rows import KeptRows
from workers.reader import ShardRows
from workers.totals import RowTotals
from workers.writer import PartFacts, write_part


@dataclass(frozen=True, slots=True)
class Generated:
    """What an attempt has generated. shard_rows: the rows it was to generate. speculation: what drafting did.

    kept: what it takes over of others.
    """

    shard_rows: ShardRows
    outcomes: Mapping[SampleKey, RowOutcome]
    session: Session
    speculation: Mapping[str, Any]
    load_seconds: float
    generate_seconds: float
    checkpoint_seconds: float
    kept: KeptRows | None = None


def publish_shard(attempt: Attempt, generated: Generated) -> None:
    """Writes the part aside and commits it. Raises as write_part and commit_shard do, and LeaseLost."""
    began = time.monotonic()
    staged = new_staged_path(attempt.layout, attempt.shard, attempt.number)
    facts = _write(attempt, staged, generated)
    try:
        attempt.lease.confirm()
    except LeaseLost:
        # With the job finished by others nobody but `jobctl gc` would come to clear it away.
        with contextlib.suppress(OSError):
            staged.unlink(missing_ok=True)
        raise
    receipt = receipt_of(attempt, staged, facts, generated, time.monotonic() - began)
    commit_shard(attempt.layout, attempt.plan, attempt.shard, receipt, staged)
    clear(attempt.layout, attempt.shard, attempt.generation)


def _write(attempt: Attempt, staged: Path, generated: Generated) -> PartFacts:
    rows, versions = generated.shard_rows, generated.session.versions()
    return write_part(staged, attempt.plan, attempt.shard, rows, generated.outcomes, versions, generated.kept)


def receipt_of(
    attempt: Attempt, staged: Path, facts: PartFacts, generated: Generated, commit_seconds: float
) -> Receipt:
    receipt = Receipt(
        job_id=attempt.plan.job_id,
        shard_index=attempt.shard.shard_index,
        generation=attempt.generation,
        attempt=attempt.number,
        staged=staged.name,
        part=attempt.layout.part_name(attempt.shard),
        first_row=attempt.shard.first_row,
        num_rows=facts.num_rows,
        num_samples=facts.num_samples,
        num_ok=facts.num_ok,
        num_failed=facts.num_failed,
        size_bytes=facts.size_bytes,
        sha256=facts.sha256,
        worker=attempt.context.options.name,
        committed_at=utc_now(),
        statistics=_statistics(generated, commit_seconds),
        speculation=dict(generated.speculation) or None,
        shapes=dict(generated.session.shapes()) or None,
    )
    return receipt if generated.kept is None else generated.kept.added_to(receipt)


def _statistics(generated: Generated, commit_seconds: float) -> ShardStatistics:
    totals = RowTotals.of(generated.outcomes.values())
    seconds = (generated.generate_seconds, generated.load_seconds, commit_seconds, generated.checkpoint_seconds)
    return totals.with_seconds(*seconds)
