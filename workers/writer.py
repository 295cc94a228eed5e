"""Writing a part: carried columns, then results; it has its name only once it is whole and has been checked."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.storage.durable import retryable_io, sha256_of, temp_path
from jobs.storage.result_columns import result_arrays
from jobs.texts import one_line
from schemas.columns import part_schema
from schemas.errors import ShardRetryable
from schemas.generation import RowOutcome, SampleKey
from schemas.plan import Plan, ShardPlan
from workers.kept_rows import KeptRows
from workers.ordering import ordered_outcomes
from workers.reader import ShardRows


@dataclass(frozen=True, slots=True)
class PartFacts:
    """What a receipt says of a part. num_rows: of the input. num_samples: of the part. sha256: of its bytes."""

    num_rows: int
    num_samples: int
    num_ok: int
    num_failed: int
    size_bytes: int
    sha256: str


def write_part(
    path: Path,
    plan: Plan,
    shard: ShardPlan,
    shard_rows: ShardRows,
    outcomes: Mapping[SampleKey, RowOutcome],
    metadata: Mapping[str, str],
    kept: KeptRows | None = None,
) -> PartFacts:
    """Writes and checks a shard's part. outcomes: those of each of `shard_rows`, and no others.

    kept: the shard's other rows, where these are not all of them. metadata: kept in the file under `specbatch.<key>`,
    beside job, model, draft and version. Raises ShardRetryable where an outcome is missing or foreign, or the file
    cannot be written; `path` is then not there.
    """
    positions = {row.row_index: position for position, row in enumerate(shard_rows.rows)}
    ordered = ordered_outcomes(shard, positions, outcomes)
    table = part_table(plan, carried_rows(positions, shard_rows.table, ordered), ordered, metadata)
    if kept is not None:
        table = kept.merge(table)
    temp = temp_path(path)
    what = f"shard {shard.shard_index}: cannot write its part"
    with retryable_io(what):
        try:
            pq.write_table(table, temp, compression="zstd", write_page_checksum=True)
            check_part(temp, table, [plan.spec.output_prefix + name for name in ("row_index", "sample_index")])
            facts = _facts(temp, shard, table.column(plan.spec.output_prefix + "status"))
            os.replace(temp, path)
        except pa.ArrowException as error:
            raise ShardRetryable(f"{what}: {one_line(error)}") from error
        finally:
            temp.unlink(missing_ok=True)
    return facts


def carried_rows(positions: Mapping[int, int], carried: pa.Table, outcomes: Sequence[RowOutcome]) -> pa.Table:
    """The input row of each outcome, in the outcomes' order: once for each of its samples.

    positions: row_index -> where the row is in `carried`.
    """
    if len(outcomes) == carried.num_rows:  # each row has one at least
        return carried
    # Not `take`: Arrow has none for some types, and copies that may pass 2 GiB.
    return pa.concat_tables(carried.slice(positions[outcome.row_index], 1) for outcome in outcomes)


def part_table(plan: Plan, carried: pa.Table, outcomes: Sequence[RowOutcome], metadata: Mapping[str, str]) -> pa.Table:
    """The part's rows under its schema; the input's own schema metadata is kept."""
    schema = part_schema(carried.schema, plan.spec.save_token_ids, plan.spec.output_prefix)
    kept = {**(carried.schema.metadata or {}), **part_metadata(plan, metadata)}
    columns = [*carried.columns, *result_arrays(plan.spec, outcomes)]
    return pa.Table.from_arrays(columns, schema=schema.with_metadata(kept))


def part_metadata(plan: Plan, extra: Mapping[str, str]) -> dict[bytes, bytes]:
    """Where a part comes from, for its Parquet key-value metadata."""
    spec = plan.spec
    values = {
        "job_id": plan.job_id,
        "spec_sha256": spec.digest(),
        "model": spec.model,
        "revision": spec.revision or "",
        "draft": spec.draft,
        "draft_model": spec.draft_model or "",
        "draft_revision": spec.draft_revision or "",
        "version": own_version(),
        **extra,
    }
    return {f"specbatch.{key}".encode(): value.encode() for key, value in values.items()}


def own_version() -> str:
    try:
        return version("specbatch")
    except PackageNotFoundError:  # run from a checkout
        return "unknown"


def check_part(path: Path, table: pa.Table, keys: Sequence[str]) -> None:
    """Reopens a written part. Raises ShardRetryable where rows, schema or the columns `keys` are not `table`'s."""
    with pq.ParquetFile(path, page_checksum_verification=True) as part:
        wrong = [] if part.metadata.num_rows == table.num_rows else ["rows"]
        wrong += [] if part.schema_arrow.equals(table.schema) else ["schema"]
        read = part.read(keys)
        wrong += [key for key in keys if not read.column(key).equals(table.column(key))]
    if wrong:
        raise ShardRetryable(f"the part that was written differs in {', '.join(wrong)}")


def _facts(path: Path, shard: ShardPlan, statuses: pa.ChunkedArray) -> PartFacts:
    num_ok = statuses.to_pylist().count("ok")
    counts = (shard.num_rows, len(statuses), num_ok, len(statuses) - num_ok)
    return PartFacts(*counts, path.stat().st_size, sha256_of(path))
