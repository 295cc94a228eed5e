"""Finished samples of a running shard's rows, saved so that the next attempt generates only the others.

A part's name holds the hash of its bytes, so that a torn or damaged one is known and ignored.
"""

import hashlib
import io
import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.storage.durable import make_dirs, replace, retryable_io
from jobs.storage.layout import Layout, generation_in
from schemas.generation import RowOutcome, RowStatistics, SampleKey
from schemas.plan import ShardPlan

logger = logging.getLogger(__name__)

NUM_DIGEST_CHARS = 32


def append_rows(
    layout: Layout, shard: ShardPlan, attempt: int, outcomes: Sequence[RowOutcome], generation: int = 0
) -> None:
    """Saves finished samples durably. Raises ShardRetryable on I/O errors."""
    if not outcomes:
        return
    data = _to_parquet(outcomes)
    path = layout.wip_path(shard.shard_index, attempt, _digest(data), generation)
    with retryable_io(f"shard {shard.shard_index}: cannot save finished rows"):
        make_dirs(path.parent)
        replace(path, data)


def read_finished(layout: Layout, shard: ShardPlan, generation: int = 0) -> dict[SampleKey, RowOutcome]:
    """Outcomes of a generation's saved samples of the shard, whichever attempt saved them: any copy is as good."""
    rows = range(shard.first_row, shard.end_row)
    outcomes = (o for path in _parts(layout, shard, generation) for o in _read_part(path) if o.row_index in rows)
    found: dict[SampleKey, RowOutcome] = {}
    for outcome in outcomes:
        if outcome.error is not None or outcome.key not in found:
            found[outcome.key] = outcome
    # A row of which one sample cannot be generated is an error as a whole, also where others were saved before.
    failed = {row_index for (row_index, _), outcome in found.items() if outcome.error is not None}
    return {key: outcome for key, outcome in found.items() if key[0] not in failed or outcome.error is not None}


def clear(layout: Layout, shard: ShardPlan, generation: int = 0) -> None:
    """Removes the saved rows of a generation that is committed."""
    # An earlier attempt that has not heard of the commit may add rows meanwhile; the end of the job removes them.
    shutil.rmtree(layout.wip_dir(shard.shard_index, generation), ignore_errors=True)


def clear_up_to(layout: Layout, generations: Mapping[int, int]) -> None:
    """Removes saved rows of committed generations. generations: shard_index -> the newest one that is committed."""
    for path in layout.wips_dir.glob("*"):
        owner = generation_in(path.name)
        if owner is not None and owner[1] <= generations.get(owner[0], -1):
            shutil.rmtree(path, ignore_errors=True)


def _parts(layout: Layout, shard: ShardPlan, generation: int) -> list[Path]:
    return sorted(layout.wip_dir(shard.shard_index, generation).glob("[!.]*.parquet"))


def _read_part(path: Path) -> Iterator[RowOutcome]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:  # cleared since it was listed
        return
    if path.stem.rpartition("-")[2] != _digest(data):
        logger.warning("%s is torn or damaged; its rows are generated again", path)
        return
    yield from _from_parquet(data)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:NUM_DIGEST_CHARS]


def _to_parquet(outcomes: Sequence[RowOutcome]) -> bytes:
    # JSON holds every str exactly, also the lone surrogates that Arrow refuses.
    columns = {
        "row_index": pa.array([outcome.row_index for outcome in outcomes], pa.int64()),
        "sample_index": pa.array([outcome.sample_index for outcome in outcomes], pa.int32()),
        "outcome": pa.array([json.dumps(asdict(outcome)) for outcome in outcomes], pa.string()),
    }
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def _from_parquet(data: bytes) -> Iterator[RowOutcome]:
    table = pq.read_table(pa.BufferReader(data), columns=["outcome"])
    for text in table.column("outcome").to_pylist():
        yield _decode(json.loads(text))


def _decode(values: dict[str, Any]) -> RowOutcome:
    error, statistics = values["error"], values["statistics"]
    values["token_ids"] = tuple(values["token_ids"])
    values["error"] = None if error is None else (error[0], error[1])
    values["statistics"] = None if statistics is None else RowStatistics(**statistics)
    return RowOutcome(**values)
