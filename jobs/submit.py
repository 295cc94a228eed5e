"""Submit: the client's story. Everything is checked before anything is written."""

import re
from collections.abc import Sequence
from pathlib import Path

from jobs.allowed import check_allowed
from jobs.control.queue import Queue
from jobs.control.reconcile import reconcile_job
from jobs.control.state import JobRecord
from jobs.control.store import Store
from jobs.input.columns import PromptColumns
from jobs.input.inputs import discover
from jobs.input.paths import output_dir, resolve_paths
from jobs.plan.differences import files_difference
from jobs.plan.models import has_chat_template, locate_model, resolve_draft_model, resolve_model
from jobs.plan.planning import job_id_of, load_plan, make_plan, save_plan
from jobs.resume import reopen_if_stopped
from jobs.settings import Settings
from jobs.storage.durable import unique_name
from jobs.storage.layout import Layout
from schemas.errors import InvalidJob, NotFound
from schemas.job import JobSpec
from schemas.plan import InputFile, Plan

NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._-]+")


def submit(
    spec: JobSpec, settings: Settings, store: Store, queue: Queue, new: bool = False, run_id: str | None = None
) -> str:
    """Plans the job, saves the plan, and enqueues its shards; returns the job id.

    The same request of the same input is the same job, and submitting it again resumes it: a cancelled or failed
    job runs again, dead shards get new attempts, and limits are the new ones. new: another job in any case. run_id:
    makes the job's id, for a caller that may submit twice (a schedule's tick); such a job, once known, is left as it
    is.

    Raises InvalidJob and then leaves nothing behind, and QueueUnavailable, after which submitting again goes on.
    """
    check_allowed(spec, Layout(output_dir(spec)), settings)
    store.ping()
    if run_id is not None and store.has_job(job_id_of_run(run_id)):
        return job_id_of_run(run_id)
    plan = plan_job(spec, new, run_id)
    saved = save_plan(Layout(Path(plan.spec.output)), plan)
    store.register_job(JobRecord.of(saved).with_limits(spec))
    if run_id is None:
        reopen_if_stopped(saved.job_id, store)
    reconcile_job(saved.job_id, settings, store, queue)
    return saved.job_id


def plan_job(spec: JobSpec, new: bool = False, run_id: str | None = None) -> Plan:
    """The plan that submit would save; it writes nothing. Raises InvalidJob."""
    located = resolve_paths(spec)
    # Before the model: what is wrong with the input should not wait for a hub to answer.
    table = discover(located)
    resolved = pin_model(located)
    check_chat_template(resolved.model, table.columns)
    if run_id is not None:
        job_id = job_id_of_run(run_id)
    elif new:
        job_id = job_id_of(resolved, table.files, nonce=unique_name())
    else:
        job_id = _kept_job_id(resolved, table.files) or job_id_of(resolved, table.files)
    return make_plan(resolved, table, job_id)


def _kept_job_id(spec: JobSpec, files: Sequence[InputFile]) -> str | None:
    """The job that the output holds already where it is of this very request: one made with --new, or by a schedule."""
    try:
        saved = load_plan(Path(spec.output))
    except NotFound:
        return None
    is_same = saved.spec.deciding() == spec.deciding() and not files_difference(saved.files, files)
    return saved.job_id if is_same else None


def pin_model(spec: JobSpec) -> JobSpec:
    """Models' absolute paths and pinned revisions, so that every worker runs the same job. Raises InvalidJob."""
    model = locate_model(spec.model)
    pinned: dict[str, str] = {"model": model, "revision": resolve_model(model, spec.revision, spec.allow_pickle)}
    if spec.draft_model is not None:
        draft = locate_model(spec.draft_model)
        revision = resolve_draft_model(draft, spec.draft_revision, spec.allow_pickle)
        pinned |= {"draft_model": draft, "draft_revision": revision}
    return spec.model_copy(update=pinned)


def check_chat_template(model: str, columns: PromptColumns) -> None:
    """Raises InvalidJob where a model whose files are at hand has no template for the input's messages."""
    if columns.prompt_kind == "messages" and has_chat_template(model) is False:
        raise InvalidJob(
            f"model {model} has no chat template for the messages in column {columns.prompt_column!r}; "
            "use a chat model, or name a text column with --prompt-column"
        )


def job_id_of_run(run_id: str) -> str:
    """A job id that people recognise: `nightly-2030-01-31T02-00-00Z`."""
    return NOT_IN_IDS.sub("-", run_id)
