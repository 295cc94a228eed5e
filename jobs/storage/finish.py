"""The commit of a job: when every shard has its wanted generation, the manifest and _SUCCESS.

A finalizer may freeze at any step while a retry makes newer generations and another finalizer ends the job again. It
must not harm those. Both files are made aside under the manifest's own digest, then it is looked whether the manifest
is still that of the job, then they are renamed; and before that a finalizer removes what others have aside under
another digest. A finalizer that was overtaken has looked before the retry began, so what it has aside was there when
the newer finalizer removed it: either it is renamed by then and replaced by the newer file, or its rename fails.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jobs.storage.checkpoint import clear_up_to
from jobs.storage.commit import Step, no_step
from jobs.storage.durable import fsync_dir, temps_of, unique_name, write_synced
from jobs.storage.generations import missing_shards
from jobs.storage.layout import Layout, attempt_in
from jobs.storage.receipts import newest_generations, read_receipts, roll_forward
from jobs.storage.records import read_record, record_bytes
from schemas.errors import ShardFailed
from schemas.plan import Plan
from schemas.receipt import Manifest, Receipt, ShardStatistics

NUM_DIGEST_CHARS = 12


def commit_job(layout: Layout, plan: Plan, step: Step = no_step) -> Manifest | None:
    """Publishes the manifest and then _SUCCESS; None while a shard is missing. Any process may, at any time.

    The manifest follows from plan and receipts alone, so two processes that finish a job write the same bytes.
    Raises ShardFailed where a committed part is gone; OSError, after which it may be called again.
    """
    while not missing_shards(layout, plan):
        receipts = read_receipts(layout)
        if finished := finished_manifest(layout, plan, receipts):
            return finished
        manifest = make_manifest(plan, [_receipt_of(shard.shard_index, receipts) for shard in plan.shards])
        if _finish(layout, plan, manifest, step):
            return manifest
    return None


def _receipt_of(shard_index: int, receipts: Mapping[int, Receipt]) -> Receipt:
    """Raises ShardFailed for one that is listed and not there, as a link to nothing."""
    if shard_index not in receipts:
        raise ShardFailed(f"the receipt of shard {shard_index} cannot be read; remove it, and then jobctl resume")
    return receipts[shard_index]


def make_manifest(plan: Plan, receipts: Sequence[Receipt]) -> Manifest:
    """receipts: one a shard, in order. finished_at is when the last one was committed."""
    return Manifest(
        job_id=plan.job_id,
        spec_sha256=plan.spec.digest(),
        num_rows=plan.num_rows,
        num_samples=sum(receipt.num_samples for receipt in receipts),
        num_ok=sum(receipt.num_ok for receipt in receipts),
        num_failed=sum(receipt.num_failed for receipt in receipts),
        finished_at=max(receipt.committed_at for receipt in receipts),
        statistics=sum_statistics([receipt.statistics for receipt in receipts]),
        receipts=tuple(receipts),
    )


def sum_statistics(statistics: Sequence[ShardStatistics]) -> ShardStatistics:
    fields = ShardStatistics.model_fields
    return ShardStatistics(**{name: sum(getattr(one, name) for one in statistics) for name in fields})


def read_manifest(layout: Layout) -> Manifest | None:
    """None before the job was finished first. Raises InvalidJob where the file is damaged."""
    return read_record(Manifest, layout.manifest_path)


def finished_manifest(layout: Layout, plan: Plan, receipts: Mapping[int, Receipt]) -> Manifest | None:
    """The manifest of a finished job, else None: also where _SUCCESS is there, and shards are missing or newer.

    receipts: the newest of each shard that has one.
    """
    if not layout.success_path.exists() or missing_shards(layout, plan):
        return None
    in_order = [receipts[shard.shard_index] for shard in plan.shards if shard.shard_index in receipts]
    manifest = read_manifest(layout)
    is_of_all = len(in_order) == len(plan.shards) and manifest == make_manifest(plan, in_order)
    return manifest if is_of_all else None


def _finish(layout: Layout, plan: Plan, manifest: Manifest, step: Step) -> bool:
    """Whether both files are published; not where others have overtaken this process meanwhile."""
    for receipt in manifest.receipts:
        roll_forward(layout, receipt)
    step("parts_in_place")
    _remove_leftovers(layout, manifest.receipts)
    step("leftovers_removed")
    files = ((layout.manifest_path, record_bytes(manifest)), (layout.success_path, b""))
    return all(_publish(layout, plan, manifest, path, data, step) for path, data in files)


def _publish(layout: Layout, plan: Plan, manifest: Manifest, path: Path, data: bytes, step: Step) -> bool:
    """Whether `path` is in place. Not where the manifest is no longer the job's, or another process was faster."""
    what = path.name.strip("_").partition(".")[0].lower()
    digest = hashlib.sha256(record_bytes(manifest)).hexdigest()[:NUM_DIGEST_CHARS]
    _remove_aside(layout, path, lambda name: f".{digest}-" not in name)
    temp = layout.control_dir / f".{path.name}.{digest}-{unique_name()}.tmp"
    try:
        write_synced(temp, data)
        step(f"{what}_aside")
        is_current = _is_current(layout, plan, manifest)
        step(f"{what}_looked_at")
        if not (is_current and _rename(temp, path)):
            return False
    finally:
        temp.unlink(missing_ok=True)
    fsync_dir(layout.output)
    step(f"{what}_published")
    _remove_aside(layout, path, lambda name: f".{digest}-" in name)
    return True


def _remove_aside(layout: Layout, path: Path, is_meant: Callable[[str], bool]) -> None:
    for temp in temps_of(layout.control_dir, path.name):
        if is_meant(temp.name):
            temp.unlink(missing_ok=True)


def _is_current(layout: Layout, plan: Plan, manifest: Manifest) -> bool:
    of_manifest = {receipt.shard_index: receipt.generation for receipt in manifest.receipts}
    return not missing_shards(layout, plan) and newest_generations(layout) == of_manifest


def _rename(temp: Path, path: Path) -> bool:
    """False where another process has removed it: it has finished the job, or a retry has begun."""
    try:
        os.replace(temp, path)
    except FileNotFoundError:
        return False
    return True


def _remove_leftovers(layout: Layout, receipts: Sequence[Receipt]) -> None:
    """What attempts left behind that were killed, up to those that made the receipts: later ones may be at work.

    With every part in place no receipt names any of it.
    """
    committed_by = {receipt.shard_index: receipt.attempt for receipt in receipts}
    for directory in (layout.staged_dir, layout.receipts_dir):
        for path in directory.iterdir():
            owner = attempt_in(path.name)
            if owner is not None and owner[1] <= committed_by.get(owner[0], 0):
                path.unlink(missing_ok=True)
    # An attempt that has not heard of the end yet may add rows meanwhile; nobody will read them.
    clear_up_to(layout, {receipt.shard_index: receipt.generation for receipt in receipts})
