"""What the storage tests share: small inputs, plans of them, outcomes, and the oracle of a finished job."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.input.inputs import discover
from jobs.input.paths import resolve_paths
from jobs.plan.planning import job_id_of, make_plan
from jobs.storage.commit import Step, begin_attempt, commit_shard, new_staged_path, no_step, prepare_shard
from jobs.storage.durable import sha256_of
from jobs.storage.generations import wanted_generation
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipts
from schemas.generation import RowOutcome, RowStatistics, SampleKey
from schemas.job import JobSpec
from schemas.plan import Plan, ShardPlan
from schemas.receipt import Manifest, Receipt, ShardStatistics
from workers.kept_rows import read_kept
from workers.reader import read_shard
from workers.totals import RowTotals
from workers.writer import PartFacts, write_part


def write_parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


def prompts(num_rows: int, first: int = 0) -> dict[str, Any]:
    return {"prompt": [f"prompt {row}" for row in range(first, first + num_rows)]}


def spec_of(source: Path | str, output: Path | str, **options: Any) -> JobSpec:
    return resolve_paths(JobSpec(input=str(source), output=str(output), model="tiny", **options))


def plan_of(spec: JobSpec, nonce: str = "") -> Plan:
    table = discover(spec)
    return make_plan(spec, table, job_id_of(spec, table.files, nonce))


def ok_outcome(row_index: int, token_ids: Sequence[int] = (5, 6, 2), sample_index: int = 0) -> RowOutcome:
    statistics = RowStatistics(
        num_target_steps=1,
        num_spec_steps=1,
        num_draft_tokens=4,
        num_accepted_draft_tokens=1,
        acceptance_histogram=[0, 1, 0, 0, 0],
    )
    return RowOutcome(
        row_index=row_index,
        sample_index=sample_index,
        text=f"answer {row_index}" + (f".{sample_index}" if sample_index else ""),
        finish_reason="stop",
        num_prompt_tokens=3,
        token_ids=tuple(token_ids),
        seed=row_index + 100,
        statistics=statistics,
    )


def failed_outcome(row_index: int, kind: str = "null_prompt", message: str = "the prompt is null") -> RowOutcome:
    return RowOutcome(row_index=row_index, error=(kind, message))


def by_key(outcomes: Iterable[RowOutcome]) -> dict[SampleKey, RowOutcome]:
    return {outcome.key: outcome for outcome in outcomes}


def outcomes_of(shard: ShardPlan, num_samples: int = 1) -> dict[SampleKey, RowOutcome]:
    rows = range(shard.first_row, shard.end_row)
    return by_key(ok_outcome(row, sample_index=sample) for row in rows for sample in range(num_samples))


def statistics_of(outcomes: Mapping[SampleKey, RowOutcome]) -> ShardStatistics:
    return RowTotals.of(outcomes.values()).with_seconds(0.0, 0.0, 0.0)


def receipt_of(
    layout: Layout,
    plan: Plan,
    shard: ShardPlan,
    attempt: int,
    staged: Path,
    facts: PartFacts,
    statistics: ShardStatistics | None = None,
    generation: int = 0,
) -> Receipt:
    return Receipt(
        job_id=plan.job_id,
        shard_index=shard.shard_index,
        generation=generation,
        attempt=attempt,
        staged=staged.name,
        part=layout.part_name(shard),
        first_row=shard.first_row,
        num_rows=facts.num_rows,
        num_samples=facts.num_samples,
        num_ok=facts.num_ok,
        num_failed=facts.num_failed,
        size_bytes=facts.size_bytes,
        sha256=facts.sha256,
        worker="test",
        committed_at=f"2026-01-01T00:00:{shard.shard_index:02d}.000000+00:00",
        statistics=statistics or ShardStatistics(),
    )


def run_attempt(
    layout: Layout,
    plan: Plan,
    shard: ShardPlan,
    step: Step = no_step,
    outcomes: Mapping[SampleKey, RowOutcome] | None = None,
) -> Receipt:
    """The worker's way with a shard, without a model: the receipt that there is, or a new one.

    outcomes: of the shard's rows; all are ok where not given. A retry takes those of the rows that had failed.
    """
    attempt = begin_attempt(layout, shard.shard_index, step)
    receipt = prepare_shard(layout, shard, attempt, step)
    if receipt is not None:
        return receipt
    generation = wanted_generation(layout, shard.shard_index)
    kept, rows = read_kept(layout, plan, shard, generation), read_shard(plan, shard)
    step("input_read")
    outcomes = outcomes_of(shard, plan.spec.n) if outcomes is None else outcomes
    if kept is not None:
        rows = rows.only(kept.failed_rows)
        outcomes = {key: outcome for key, outcome in outcomes.items() if key[0] in kept.failed_rows}
    staged = new_staged_path(layout, shard, attempt)
    facts = write_part(staged, plan, shard, rows, outcomes, {}, kept)
    step("part_staged")
    made = receipt_of(layout, plan, shard, attempt, staged, facts, statistics_of(outcomes), generation)
    made = made if kept is None else kept.added_to(made)
    return commit_shard(layout, plan, shard, made, staged, step)


def check_finished(layout: Layout, plan: Plan, manifest: Manifest | None) -> None:
    """Every sample once and in order, one of a row that failed; parts as their receipts say, and nothing else left."""
    assert manifest is not None
    assert layout.success_path.exists()
    rows: list[tuple[int, int, str]] = []
    for shard, receipt in zip(plan.shards, manifest.receipts, strict=True):
        part = layout.part_path(shard)
        assert receipt.part == layout.part_name(shard)
        assert (receipt.sha256, receipt.size_bytes) == (sha256_of(part), part.stat().st_size)
        columns = pq.ParquetFile(part).read(["row_index", "sample_index", "status"]).to_pydict()
        rows += zip(*columns.values(), strict=True)
    failed = {row_index for row_index, _, status in rows if status == "error"}
    samples = (range(1 if row in failed else plan.spec.n) for row in range(plan.num_rows))
    assert [row[:2] for row in rows] == [(row, sample) for row, among in enumerate(samples) for sample in among]
    assert (manifest.num_failed, manifest.num_samples) == (len(failed), len(rows))
    assert list(manifest.receipts) == [read_receipts(layout)[shard.shard_index] for shard in plan.shards]
    assert leftovers(layout) == []


def leftovers(layout: Layout) -> list[str]:
    """Files of a finished job that nothing names: temporary, staged or of a running shard."""
    kept = ("spec.json", "plan.json", "attempts", "receipts", "generations")
    files = (path.relative_to(layout.output) for path in layout.output.rglob("*") if path.is_file())
    control = layout.control_dir.name
    return [str(f) for f in files if f.name[0] == "." or (f.parts[0] == control and f.parts[1] not in kept)]
