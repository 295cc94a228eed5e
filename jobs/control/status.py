"""How a job stands: computed from its receipts and the store, or from the output directory alone."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from jobs.control.speculation import merge_speculation
from jobs.control.state import FailedKind, JobRecord, ShardProgress, ShardStates
from jobs.control.store import Store
from jobs.plan.planning import load_plan
from jobs.storage.finish import finished_manifest, sum_statistics
from jobs.storage.generations import shards_behind, wanted_generations
from jobs.storage.layout import Layout
from jobs.storage.receipts import missing_rows, read_receipts
from schemas.errors import InvalidJob
from schemas.job import DeviceKind
from schemas.plan import Plan
from schemas.receipt import Receipt, ShardStatistics
from schemas.values import Value

State = Literal["queued", "running", "finished", "incomplete", "cancelled", "failed"]
TERMINAL_STATES: tuple[State, ...] = ("finished", "incomplete", "cancelled", "failed")

EXIT_OK = 0
EXIT_ROW_ERRORS = 4


class RowRange(Value):
    """Rows [first_row, end_row) of the input."""

    first_row: int
    end_row: int


class JobStatus(Value):
    """How a job stands.

    num_rows_done: committed rows of the input, less failed ones that are tried again; num_ok, num_failed: samples of
    committed rows, one each unless the job asks for more. num_rows_running: rows that running attempts generate, of
    which num_rows_generated are finished and not committed yet.
    failed_kind, message: what a job failed of; why it failed, or what the first dead shard said.
    missing_rows: rows that will not come, where the job ended without them.
    tokens_per_second: of the running workers together; of a job at rest, over the time it was worked on.
    draft_acceptance_rate, mean_acceptance_length: of committed rows and running ones; None without drafts.
    speculation: the newest receipt's, with `rounds_by_k` summed over all; None where there is none.
    """

    job_id: str
    state: State
    device: DeviceKind = "auto"
    input: str
    output: str
    model: str
    created_at: str
    max_errors: str | None = None
    timeout_seconds: float | None = None
    finished_at: str | None = None
    failed_kind: FailedKind | None = None
    message: str | None = None
    num_rows: int
    num_rows_done: int = 0
    num_ok: int = 0
    num_failed: int = 0
    num_rows_running: int = 0
    num_rows_generated: int = 0
    num_shards: int
    num_shards_done: int = 0
    num_shards_running: int = 0
    num_shards_dead: int = 0
    missing_rows: tuple[RowRange, ...] = ()
    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    tokens_per_second: float | None = None
    draft_acceptance_rate: float | None = None
    mean_acceptance_length: float | None = None
    speculation: dict[str, JsonValue] | None = None
    workers: tuple[str, ...] = ()

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL_STATES

    @property
    def num_samples(self) -> int:
        return self.num_ok + self.num_failed


EXIT_CODES: dict[State, int] = {
    "queued": EXIT_OK,
    "running": EXIT_OK,
    "finished": EXIT_OK,
    "incomplete": 1,
    "cancelled": 5,
}
EXIT_CODES_OF_FAILED: dict[FailedKind, int] = {
    # A worker found that the request is wrong, as submit might have.
    "refused": InvalidJob.exit_code,
    "errors": 1,
    "timeout": 6,
}


def exit_code_of(status: JobStatus) -> int:
    """0 while the job may still finish, or finished; 4 finished with row errors; 1 rows are missing, or too many
    failed; 2 refused by a worker; 5 cancelled; 6 beyond its timeout."""
    if status.state == "failed":
        return EXIT_CODES_OF_FAILED[status.failed_kind or "refused"]
    has_row_errors = status.state == "finished" and status.num_failed > 0
    return EXIT_ROW_ERRORS if has_row_errors else EXIT_CODES[status.state]


def read_status(job_id: str, store: Store) -> JobStatus:
    """Raises NotFound where the broker does not know the job or its directory is gone, QueueUnavailable."""
    record = store.job(job_id)
    return make_status(load_plan(Path(record.output)), record, store.shard_states(job_id))


def read_status_of(output: Path) -> JobStatus:
    """From the output directory alone: a job that is not finished counts as incomplete, as nobody works on it.

    Raises NotFound where the directory holds no job.
    """
    plan = load_plan(output)
    ended = JobRecord.of(plan).model_copy(update={"output": str(output.absolute()), "ended": "incomplete"})
    return make_status(plan, ended, ShardStates())


def make_status(plan: Plan, record: JobRecord, states: ShardStates) -> JobStatus:
    # The plan's own output may be another name of the directory, as where it was moved since.
    layout = Layout(Path(record.output))
    wanted, receipts = wanted_generations(layout), read_receipts(layout)
    missing = shards_behind(plan, wanted, {shard: receipt.generation for shard, receipt in receipts.items()})
    manifest = finished_manifest(layout, plan, receipts)
    redone = {shard: receipts[shard].num_failed for shard in missing if shard in receipts}
    running = {shard: progress for shard, progress in states.running.items() if shard in missing}
    state = _state(plan, record, states, receipts, is_finished=manifest is not None)
    # Of a job that was stopped a worker may be about to hear of it.
    working = () if state in TERMINAL_STATES else running.values()
    totals = sum_statistics([receipt.statistics for receipt in receipts.values()])
    return JobStatus(
        job_id=plan.job_id,
        state=state,
        device=plan.spec.device,
        input=plan.spec.input,
        output=record.output,
        model=plan.spec.model,
        created_at=plan.created_at,
        max_errors=record.max_errors,
        timeout_seconds=record.timeout_seconds,
        finished_at=manifest.finished_at if manifest else None,
        failed_kind=(record.failed_kind or "refused") if state == "failed" else None,
        message=_message(state, record, states),
        num_rows=plan.num_rows,
        num_rows_done=sum(receipt.num_rows for receipt in receipts.values()) - sum(redone.values()),
        num_ok=sum(receipt.num_ok for receipt in receipts.values()),
        num_failed=sum(receipt.num_failed for receipt in receipts.values()),
        num_rows_running=sum(progress.num_rows for progress in running.values()),
        num_rows_generated=sum(progress.num_rows_done for progress in running.values()),
        num_shards=len(plan.shards),
        num_shards_done=len(plan.shards) - len(missing),
        num_shards_running=len(running),
        num_shards_dead=len(states.dead),
        missing_rows=tuple(_missing(plan, receipts)) if state in TERMINAL_STATES else (),
        num_prompt_tokens=totals.num_prompt_tokens,
        num_completion_tokens=totals.num_completion_tokens + sum(p.num_tokens for p in running.values()),
        tokens_per_second=_tokens_per_second(totals, receipts.values(), working),
        draft_acceptance_rate=_acceptance_rate(totals, running.values()),
        mean_acceptance_length=_acceptance_length(totals, running.values()),
        speculation=merge_speculation(receipts.values()),
        workers=tuple(sorted({progress.worker for progress in running.values()})),
    )


def _state(
    plan: Plan, record: JobRecord, states: ShardStates, receipts: Mapping[int, Receipt], is_finished: bool
) -> State:
    """The receipts outrank the store: a job that is finished was not cancelled in time."""
    if is_finished:
        return "finished"
    if record.failed is not None:
        return "failed"
    if record.cancelled_at is not None:
        return "cancelled"
    if record.ended is not None:
        return "incomplete"
    return "running" if receipts or states.running or states.taken else "queued"


def _message(state: State, record: JobRecord, states: ShardStates) -> str | None:
    if state == "failed":
        return record.failed
    if states.dead:
        shard = min(states.dead)
        text = states.dead[shard]
        return text if text.startswith(f"shard {shard}:") else f"shard {shard}: {text}"
    return None


def _missing(plan: Plan, receipts: Mapping[int, Receipt]) -> Iterable[RowRange]:
    return (RowRange(first_row=rows.start, end_row=rows.stop) for rows in missing_rows(plan, receipts))


def _tokens_per_second(
    totals: ShardStatistics, receipts: Collection[Receipt], running: Collection[ShardProgress]
) -> float | None:
    if running:
        return sum(progress.num_tokens / progress.seconds for progress in running if progress.seconds > 0)
    if not receipts:
        return None
    ends = [datetime.fromisoformat(receipt.committed_at) for receipt in receipts]
    starts = [end - _worked(receipt.statistics) for end, receipt in zip(ends, receipts, strict=True)]
    seconds = (max(ends) - min(starts)).total_seconds()
    return totals.num_completion_tokens / seconds if seconds > 0 else None


def _worked(statistics: ShardStatistics) -> timedelta:
    return timedelta(seconds=statistics.load_seconds + statistics.generate_seconds + statistics.commit_seconds)


def _acceptance_rate(totals: ShardStatistics, running: Collection[ShardProgress]) -> float | None:
    drafted = totals.num_draft_tokens + sum(p.num_draft_tokens for p in running)
    return _accepted(totals, running) / drafted if drafted else None


def _acceptance_length(totals: ShardStatistics, running: Collection[ShardProgress]) -> float | None:
    steps = totals.num_spec_steps + sum(p.num_spec_steps for p in running)
    return 1 + _accepted(totals, running) / steps if steps else None


def _accepted(totals: ShardStatistics, running: Collection[ShardProgress]) -> int:
    return totals.num_accepted_draft_tokens + sum(p.num_accepted_draft_tokens for p in running)
