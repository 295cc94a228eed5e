"""The commit of a job: when every shard has its receipt, the manifest and _SUCCESS."""

import shutil
from collections.abc import Sequence

from jobs.storage.commit import Step, no_step
from jobs.storage.durable import fsync_dir, replace
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipts, roll_forward
from jobs.storage.records import read_record, record_bytes
from schemas.plan import Plan
from schemas.receipt import Manifest, Receipt, ShardStatistics


def commit_job(layout: Layout, plan: Plan, step: Step = no_step) -> Manifest | None:
    """Publishes the manifest and then _SUCCESS; None while a receipt is missing. Any process may, at any time.

    The manifest follows from plan and receipts alone, so two processes that finish a job write the same bytes.
    Raises ShardFailed where a committed part is gone; OSError, after which it may be called again.
    """
    by_shard = read_receipts(layout)
    if any(shard.shard_index not in by_shard for shard in plan.shards):
        return None
    manifest = make_manifest(plan, [by_shard[shard.shard_index] for shard in plan.shards])
    if layout.success_path.exists() and read_manifest(layout) == manifest:
        return manifest
    for receipt in manifest.receipts:
        roll_forward(layout, receipt)
    step("parts_in_place")
    _remove_leftovers(layout)
    step("leftovers_removed")
    _publish_manifest(layout, manifest)
    step("manifest_published")
    layout.success_path.touch()
    fsync_dir(layout.output)
    step("success_published")
    return manifest


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
    """None while the job is not finished. Raises InvalidJob where the file is damaged."""
    return read_record(Manifest, layout.manifest_path)


def _publish_manifest(layout: Layout, manifest: Manifest) -> None:
    try:
        replace(layout.manifest_path, record_bytes(manifest))
    except FileNotFoundError:
        # Another process has published the same bytes and then removed our temporary file, below.
        if not layout.manifest_path.exists():
            raise
    for temp in layout.output.glob(f".{layout.manifest_path.name}.*.tmp"):
        temp.unlink(missing_ok=True)


def _remove_leftovers(layout: Layout) -> None:
    """What attempts that were killed left behind; with every part in place none of it is named by a receipt."""
    for directory, pattern in ((layout.staged_dir, "*"), (layout.receipts_dir, ".*")):
        for path in directory.glob(pattern):
            path.unlink(missing_ok=True)
    # An attempt that has not heard of the end yet may add rows meanwhile; nobody will read them.
    shutil.rmtree(layout.wips_dir, ignore_errors=True)
