"""Planning: which rows make which shard. The plan is saved before anything is queued and never recomputed."""

import contextlib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from jobs.clock import utc_now
from jobs.input.inputs import InputTable
from jobs.input.schema import encode_schema
from jobs.plan.differences import files_difference, spec_difference
from jobs.plan.output_dir import cannot_write, check_free, create_output
from jobs.plan.tiling import count_shards, plan_shards
from jobs.storage.durable import write_exclusive
from jobs.storage.layout import NUM_SHARDS_MAX, Layout
from jobs.storage.records import read_record, record_bytes
from schemas.errors import InvalidJob, NotFound
from schemas.job import JobSpec
from schemas.plan import InputFile, Plan


def job_id_of(spec: JobSpec, files: Sequence[InputFile], nonce: str = "") -> str:
    """`job-<12 hex>` of the resolved spec and the input's fingerprints: the same request is the same job.

    nonce: makes another job of the same request.
    """
    request = [spec.deciding(), [file.model_dump(mode="json") for file in files], nonce]
    text = json.dumps(request, sort_keys=True)
    return f"job-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def make_plan(spec: JobSpec, table: InputTable, job_id: str) -> Plan:
    """The plan of a resolved spec over its input. Raises InvalidJob where there would be too many shards."""
    num_shards = count_shards(table.files, spec.shard_rows)
    if num_shards > NUM_SHARDS_MAX:
        raise InvalidJob(
            f"{table.num_rows} rows make {num_shards} shards, more than {NUM_SHARDS_MAX}; "
            f"raise --shard-rows above {spec.shard_rows}"
        )
    columns = table.columns
    return Plan(
        job_id=job_id,
        spec=spec,
        prompt_kind=columns.prompt_kind,
        prompt_column=columns.prompt_column,
        id_column=columns.id_column,
        params_column=columns.params_column,
        arrow_schema=encode_schema(table.schema),
        num_rows=table.num_rows,
        files=table.files,
        shards=plan_shards(table.files, spec.shard_rows),
        created_at=utc_now(),
    )


def save_plan(layout: Layout, plan: Plan) -> Plan:
    """Writes plan and spec durably, once; returns the plan there is: the saved one where the job is resumed.

    Raises InvalidJob, and leaves the directory as it was, where it cannot be written to, is not empty, or holds
    another job or a job whose input has changed since.
    """
    if not layout.plan_path.exists():
        check_free(layout)
        # Of two submitters at the same time one publishes its plan; the other goes by that one.
        with contextlib.suppress(FileExistsError):
            create_output(layout, record_bytes(plan))
    saved = load_plan(layout.output)
    _check_same_job(saved, plan)
    write_spec(layout, saved)
    return saved


def write_spec(layout: Layout, plan: Plan) -> None:
    """Writes the spec, once: it follows from the plan, so that any copy is the right one. Raises InvalidJob."""
    try:
        with contextlib.suppress(FileExistsError):
            write_exclusive(layout.spec_path, record_bytes(plan.spec))
    except OSError as error:
        raise InvalidJob(cannot_write(layout, error)) from error


def load_plan(output: Path) -> Plan:
    """The plan of the job in a directory. Raises NotFound where there is none, InvalidJob where it is damaged."""
    path = Layout(output).plan_path
    plan = read_record(Plan, path)
    if plan is None:
        raise NotFound(f"{output} holds no job: there is no {path.relative_to(output)}")
    return plan


def check_input_unchanged(plan: Plan, files: Sequence[InputFile]) -> None:
    """Raises InvalidJob naming the first input file that is not as it was planned."""
    difference = files_difference(plan.files, files)
    if difference is not None:
        raise InvalidJob(f"{plan.job_id}: {difference}; restore it, or submit a job with another --output")


def _check_same_job(saved: Plan, plan: Plan) -> None:
    """Raises InvalidJob naming the saved job and the first option or input file that differs."""
    difference = spec_difference(saved.spec, plan.spec) or files_difference(saved.files, plan.files)
    if difference is None and saved.job_id != plan.job_id:
        difference = "a new job was asked for"
    if difference is not None:
        raise InvalidJob(f"{plan.spec.output} holds {saved.job_id} already: {difference}; choose another --output")
