"""Whether a job is beyond its limits: too many rows failed, or it took too long."""

import shlex
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jobs.control.state import FailedKind, JobRecord, ShardStates
from jobs.control.store import Store
from jobs.storage.layout import NUM_SHARDS_MAX, Layout
from jobs.storage.receipts import newest_generations, read_receipt
from jobs.texts import counted
from schemas.limits import most_errors
from schemas.plan import Plan


@dataclass(frozen=True, slots=True)
class Excess:
    """kind: which limit it was. message: one line that says so, and how to go on."""

    kind: FailedKind
    message: str


def find_excess(
    record: JobRecord, plan: Plan, states: ShardStates, missing: Collection[int], store: Store
) -> Excess | None:
    """missing: the shards that are still to be done. Raises QueueUnavailable, InvalidJob for a damaged receipt."""
    return _too_many_errors(record, plan, states, missing) or _too_long(record, store)


def _too_many_errors(record: JobRecord, plan: Plan, states: ShardStates, missing: Collection[int]) -> Excess | None:
    if record.max_errors is None:
        return None
    num_failed = count_failed(record, states, missing)
    if num_failed <= most_errors(record.max_errors, plan.num_rows):
        return None
    what = f"{counted(num_failed, 'row')} failed, more than --max-errors {record.max_errors}"
    return Excess("errors", _with_way_on(what, record, "--max-errors"))


def _too_long(record: JobRecord, store: Store) -> Excess | None:
    if record.timeout_seconds is None or store.seconds_taken(record.job_id) <= record.timeout_seconds:
        return None
    what = f"it has taken longer than --timeout {record.timeout_seconds:g}"
    return Excess("timeout", _with_way_on(what, record, "--timeout"))


def _with_way_on(what: str, record: JobRecord, option: str) -> str:
    return f"{what}; finished shards are kept; jobctl resume {shlex.quote(record.output)} {option} …"


def count_failed(record: JobRecord, states: ShardStates, missing: Collection[int]) -> int:
    """Failed rows: of shards that are done by their receipts, of running ones as their workers report them."""
    layout, still_missing = Layout(Path(record.output)), set(missing)
    newest = newest_generations(layout).items()
    done = (layout.receipt_path(shard, generation) for shard, generation in newest if shard not in still_missing)
    running = sum(progress.num_failed for shard, progress in states.running.items() if shard in still_missing)
    return running + sum(map(_num_failed, done))


@lru_cache(maxsize=2 * NUM_SHARDS_MAX)
def _num_failed(receipt_path: Path) -> int:
    """A receipt never changes, and a job of many shards is looked at every few seconds."""
    receipt = read_receipt(receipt_path)
    return receipt.num_failed if receipt is not None else 0
