"""Whether a saved job is still what was planned: its spec, the tiling of its rows, its input, its models."""

from pathlib import Path

from jobs.input.inputs import discover
from jobs.plan.differences import spec_difference
from jobs.plan.models import resolve_draft_model, resolve_model
from jobs.plan.planning import check_input_unchanged, write_spec
from jobs.storage.layout import Layout
from jobs.storage.records import read_record
from schemas.errors import DamagedRecord, InvalidJob
from schemas.job import JobSpec
from schemas.plan import Plan


def check_unchanged(plan: Plan, output: Path) -> None:
    """`output`: where the job lies now. Raises InvalidJob, one line that names what changed."""
    _check_spec_file(plan, Layout(output))
    _check_tiling(plan, Layout(output))
    check_input_unchanged(plan, discover(plan.spec.model_copy(update={"output": str(output)})).files)
    _check_models(plan.spec)


def _check_spec_file(plan: Plan, layout: Layout) -> None:
    """A submit that was killed may have written none: it follows from the plan."""
    written = read_record(JobSpec, layout.spec_path)
    if written is None:
        write_spec(layout, plan)
        return
    difference = spec_difference(written, plan.spec)
    if difference is not None:
        raise InvalidJob(
            f"{layout.spec_path} is not the spec that {plan.job_id} was planned with: {difference}; restore it, "
            "or submit a job with another --output"
        )


def _check_tiling(plan: Plan, layout: Layout) -> None:
    """No row twice or nowhere, as after a flipped bit."""
    ends = [0, *(shard.end_row for shard in plan.shards)]
    is_whole = ends[-1] == plan.num_rows == sum(file.num_rows for file in plan.files)
    in_order = all((s.shard_index, s.first_row) == (i, ends[i]) and s.num_rows >= 0 for i, s in enumerate(plan.shards))
    if not (is_whole and in_order):
        raise DamagedRecord(f"{layout.plan_path} is damaged: its shards are not the {plan.num_rows} rows; restore it")


def _check_models(spec: JobSpec) -> None:
    _check_revision(spec.model, spec.revision, resolve_model(spec.model, spec.revision, spec.allow_pickle))
    if spec.draft_model is not None:
        found = resolve_draft_model(spec.draft_model, spec.draft_revision, spec.allow_pickle)
        _check_revision(spec.draft_model, spec.draft_revision, found)


def _check_revision(model: str, planned: str | None, found: str) -> None:
    if planned not in (None, found):
        raise InvalidJob(f"model {model} is at revision {found} and was at {planned}; restore it, or submit a new job")
