"""The commit of a shard: whatever crashes, freezes or runs twice, its rows are published once.

The receipt is the commit point. An attempt that holds the shard raises its fence first, then removes the temporary
receipts of earlier attempts, then looks for a receipt. An earlier attempt writes its temporary receipt first and then
looks for later fences. So either it sees the fence and gives up, or its temporary receipt was there to be removed: it
has published before the later attempt looked, or it never will.

Attempts are numbered through all generations of a shard, and one that publishes a generation has held the shard after
all that published earlier ones. So an attempt of an older generation that wakes late is fenced off, or finds its
generation's receipt there.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from jobs.storage.durable import create, fsync_dir, fsync_file, retryable_io, unique_name, write_synced
from jobs.storage.generations import wanted_generation
from jobs.storage.layout import Layout, attempt_in
from jobs.storage.receipts import read_receipt, read_shard_receipts, roll_forward
from jobs.storage.records import record_bytes
from jobs.texts import one_line
from schemas.errors import CommitConflict, CommitUnknown, LeaseLost, ShardFailed
from schemas.plan import Plan, ShardPlan
from schemas.receipt import Receipt

Step = Callable[[str], None]


def no_step(name: str) -> None:
    """Called between steps with the name of the one just done; tests stop the process there."""


def begin_attempt(layout: Layout, shard_index: int, step: Step = no_step) -> int:
    """Claims the shard's next attempt number (from 1): above all earlier ones, never given twice.

    Raises ShardRetryable where the directory cannot be written to.
    """
    with retryable_io(f"shard {shard_index}: cannot write to {layout.output}"):
        attempt = 1 + max(_attempts(layout, shard_index), default=0)
        while not create(layout.attempt_path(shard_index, attempt)):
            attempt += 1
        fsync_dir(layout.attempts_dir)
    step("attempt_begun")
    return attempt


def new_staged_path(layout: Layout, shard: ShardPlan, attempt: int) -> Path:
    """Where this attempt writes its part before the commit."""
    return layout.staged_path(shard.shard_index, attempt, unique_name())


def prepare_shard(layout: Layout, shard: ShardPlan, attempt: int, step: Step = no_step) -> Receipt | None:
    """Makes this attempt the only one that can commit, and clears what earlier ones left.

    Call it once the lease is held. Returns the newest receipt where it is of the wanted generation: there is nothing
    to do then. Its part is in place, as is that of an older one, from which a retry copies. Raises LeaseLost where a
    later attempt has held the shard, ShardRetryable on I/O errors.
    """
    shard_index = shard.shard_index
    with retryable_io(f"shard {shard_index}: cannot write to {layout.output}"):
        wanted = wanted_generation(layout, shard_index)
        create(layout.fence_path(shard_index, attempt))
        step("fence_raised")
        if _is_fenced(layout, shard_index, attempt):
            raise LeaseLost(f"shard {shard_index}: a later attempt than {attempt} holds it")
        _remove_earlier(layout.receipts_dir, shard_index, attempt)
        step("temp_receipts_removed")
        receipts = read_shard_receipts(layout, shard_index)
        if receipts:
            _put_in_place(layout, receipts[-1], is_wanted=receipts[-1].generation >= wanted)
        step("receipts_looked_for")
        _remove_earlier(layout.staged_dir, shard_index, attempt)  # committed ones are in place by now
        step("staged_removed")
    return receipts[-1] if receipts and receipts[-1].generation >= wanted else None


def _put_in_place(layout: Layout, receipt: Receipt, is_wanted: bool) -> None:
    """Raises ShardFailed where the part is gone or damaged, unless a later one is wanted, which is made without it."""
    try:
        roll_forward(layout, receipt)
    except ShardFailed:
        if is_wanted:
            raise


def commit_shard(
    layout: Layout, plan: Plan, shard: ShardPlan, receipt: Receipt, staged: Path, step: Step = no_step
) -> Receipt:
    """Publishes a staged part that is written and checked; returns its receipt once the part is in place.

    Raises CommitConflict where another attempt has committed the shard (its part is then in place and ours is
    dropped), LeaseLost where a later attempt holds it, CommitUnknown where the answer was lost, ShardRetryable on
    other I/O errors. After the last two the next prepare_shard finds out what became of it.
    """
    _check_receipt(layout, plan, shard, receipt, staged)
    temp = layout.temp_receipt_path(shard.shard_index, receipt.attempt, unique_name())
    with retryable_io(f"shard {shard.shard_index}: cannot write to {layout.output}"):
        if not (_write_aside(layout, receipt, staged, temp, step) and _publish(layout, receipt, temp)):
            _settle(layout, receipt, staged, temp)
        step("receipt_published")
        fsync_dir(layout.receipts_dir)
        step("receipt_durable")
        temp.unlink(missing_ok=True)
        step("temp_receipt_removed")
        roll_forward(layout, receipt)
        step("part_in_place")
    return receipt


def _write_aside(layout: Layout, receipt: Receipt, staged: Path, temp: Path, step: Step) -> bool:
    """Makes the part durable and writes the temporary receipt; whether no later attempt holds the shard."""
    try:
        fsync_file(staged)
    except FileNotFoundError:  # a later attempt, or the end of the job, has removed it
        return False
    fsync_dir(layout.staged_dir)
    step("part_durable")
    write_synced(temp, record_bytes(receipt))
    step("temp_receipt_written")
    is_fenced = _is_fenced(layout, receipt.shard_index, receipt.attempt)
    step("fences_looked_for")
    return not is_fenced


def _publish(layout: Layout, receipt: Receipt, temp: Path) -> bool:
    """The commit point; whether it was ours. Raises CommitUnknown where the answer was lost."""
    try:
        os.link(temp, layout.receipt_path(receipt.shard_index, receipt.generation))
    except (FileExistsError, FileNotFoundError):
        return False
    except OSError as error:
        raise CommitUnknown(f"shard {receipt.shard_index}: the commit may have landed: {one_line(error)}") from error
    return True


def _settle(layout: Layout, receipt: Receipt, staged: Path, temp: Path) -> None:
    """After a refusal: returns where the receipt there is our own, landed before; else drops ours and raises."""
    there = read_receipt(layout.receipt_path(receipt.shard_index, receipt.generation))
    if there is not None and (there.attempt, there.staged) == (receipt.attempt, receipt.staged):
        return
    temp.unlink(missing_ok=True)
    staged.unlink(missing_ok=True)
    if there is None:
        raise LeaseLost(f"shard {receipt.shard_index}: a later attempt than {receipt.attempt} holds it")
    roll_forward(layout, there)
    raise CommitConflict(f"shard {receipt.shard_index}: attempt {there.attempt} has committed it")


def _check_receipt(layout: Layout, plan: Plan, shard: ShardPlan, receipt: Receipt, staged: Path) -> None:
    """Raises ValueError where the caller's values do not belong together."""
    names = (receipt.job_id, receipt.staged, receipt.part)
    rows = (receipt.shard_index, receipt.first_row, receipt.num_rows)
    samples = (receipt.num_samples, receipt.num_ok, receipt.num_failed)
    if names != (plan.job_id, staged.name, layout.part_name(shard)) or staged.parent != layout.staged_dir:
        raise ValueError(f"receipt {names} is not one of {staged} in {plan.job_id}")
    if rows != (shard.shard_index, shard.first_row, shard.num_rows):
        raise ValueError(f"receipt (shard, first row, rows) {rows} is not one of {shard}")
    if receipt.num_samples < receipt.num_rows or receipt.num_samples != receipt.num_ok + receipt.num_failed:
        raise ValueError(f"receipt (samples, ok, failed) {samples} is not one of {shard.num_rows} rows")


def _is_fenced(layout: Layout, shard_index: int, attempt: int) -> bool:
    """Whether a later attempt has held the shard."""
    return max(_attempts(layout, shard_index, suffix=".fence"), default=0) > attempt


def _attempts(layout: Layout, shard_index: int, suffix: str = "") -> Iterator[int]:
    """The numbers of the shard's attempts, or of those with a file of that suffix."""
    for name in os.listdir(layout.attempts_dir):
        if name.startswith(f"{shard_index:05d}.") and name.endswith(suffix):
            yield int(name.split(".")[1])


def _remove_earlier(directory: Path, shard_index: int, attempt: int) -> None:
    """Removes the shard's temporary receipts or staged parts of attempts before ours."""
    for path in directory.iterdir():
        owner = attempt_in(path.name)
        if owner is not None and owner[0] == shard_index and owner[1] < attempt:
            path.unlink(missing_ok=True)
    fsync_dir(directory)
