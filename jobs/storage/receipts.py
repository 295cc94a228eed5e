"""Receipts: reading them, and putting in place what they have committed."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from jobs.storage.durable import fsync_dir, make_dirs, sha256_of
from jobs.storage.inside import check_inside
from jobs.storage.layout import Layout, receipt_in
from jobs.storage.records import read_record
from schemas.errors import NotFound, ShardFailed
from schemas.plan import Plan
from schemas.receipt import Receipt


def read_receipts(layout: Layout) -> dict[int, Receipt]:
    """shard_index -> the receipt of its newest generation.

    Raises NotFound where the directory is gone, InvalidJob where a receipt is damaged.
    """
    newest = newest_generations(layout).items()
    receipts = (read_receipt(layout.receipt_path(shard, generation)) for shard, generation in newest)
    return {receipt.shard_index: receipt for receipt in receipts if receipt is not None}


def newest_generations(layout: Layout) -> dict[int, int]:
    """shard_index -> generation of its newest receipt, told by the names alone.

    Raises NotFound where the directory is gone.
    """
    newest: dict[int, int] = {}
    for shard_index, generation in _published(layout):
        newest[shard_index] = max(generation, newest.get(shard_index, 0))
    return newest


def committed_shards(layout: Layout) -> set[int]:
    """Shards that have a receipt, told by the names alone. Raises NotFound where the directory is gone."""
    return {shard_index for shard_index, _ in _published(layout)}


def read_shard_receipts(layout: Layout, shard_index: int) -> list[Receipt]:
    """A shard's receipts, oldest generation first."""
    generations = sorted(generation for shard, generation in _published(layout) if shard == shard_index)
    receipts = (read_receipt(layout.receipt_path(shard_index, generation)) for generation in generations)
    return [receipt for receipt in receipts if receipt is not None]


def read_receipt(path: Path) -> Receipt | None:
    """None where there is none. Raises InvalidJob where it is damaged."""
    return read_record(Receipt, path)


def roll_forward(layout: Layout, receipt: Receipt) -> None:
    """Puts a committed part in place, whoever committed it; does nothing where it is. Never undoes.

    It is done before the next generation begins, so an older part never replaces a newer one; a receipt that has been
    replaced meanwhile asks for nothing. Raises ShardFailed where neither the part nor its staged file is there: the
    output was changed from outside.
    """
    staged, part = layout.staged_dir / receipt.staged, layout.output / receipt.part
    check_inside(part.parent, layout)
    make_dirs(part.parent)
    try:
        os.replace(staged, part)
    except FileNotFoundError as error:
        complaint = _complaint(part, receipt)
        # In this order: a newer part is in place only once its receipt is there.
        if complaint is not None and not _is_replaced(layout, receipt):
            raise ShardFailed(
                f"shard {receipt.shard_index} is committed, but {complaint}; restore it, or make it anew: jobctl retry"
            ) from error
    # Also where another process renamed it: it may have died before this.
    fsync_dir(part.parent)
    fsync_dir(layout.staged_dir)


def damage_of(layout: Layout, receipt: Receipt) -> str | None:
    """Why a committed part, in place or still staged, is not what was committed. Reads all of it."""
    staged, part = layout.staged_dir / receipt.staged, layout.output / receipt.part
    path = staged if staged.exists() else part
    try:
        return None if sha256_of(path) == receipt.sha256 else f"{path} is damaged"
    except (FileNotFoundError, IsADirectoryError):
        return f"{path} is gone"


def _complaint(part: Path, receipt: Receipt) -> str | None:
    """Why what is in place is not what was committed, as far as its size tells."""
    try:
        size_bytes = part.stat().st_size
    except FileNotFoundError:
        return f"{part} is gone"
    return None if size_bytes == receipt.size_bytes else f"{part} has {size_bytes} bytes, not {receipt.size_bytes}"


def _is_replaced(layout: Layout, receipt: Receipt) -> bool:
    return layout.receipt_path(receipt.shard_index, receipt.generation + 1).exists()


def missing_rows(plan: Plan, receipts: Mapping[int, Receipt]) -> list[range]:
    """Ranges of row_index that no receipt covers, in order, adjoining shards merged."""
    ranges: list[range] = []
    for shard in plan.shards:
        if shard.shard_index in receipts or not shard.num_rows:
            continue
        first_row = shard.first_row
        if ranges and ranges[-1].stop == first_row:
            first_row = ranges.pop().start
        ranges.append(range(first_row, shard.end_row))
    return ranges


def _published(layout: Layout) -> Iterable[tuple[int, int]]:
    """(shard_index, generation) of every receipt; temporary ones begin with a dot."""
    try:
        names = os.listdir(layout.receipts_dir)
    except FileNotFoundError as error:
        raise NotFound(f"{layout.output} holds no job: its receipts are gone") from error
    yield from filter(None, map(receipt_in, names))
