"""Garbage: what attempts that have ended left in an output directory, and nobody needs.

It is told as an attempt tells it: fences first, then the temporary receipts of earlier attempts go, and only then are
receipts read. An earlier attempt has published before that or never will, so nothing here can still be committed.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.storage.commit import Step, no_step
from jobs.storage.durable import fsync_dir, retryable_io
from jobs.storage.layout import Layout, attempt_in, generation_in, receipt_in
from jobs.storage.receipts import read_receipts

UNOWNED_SECONDS = 3600  # a file half written that no attempt's number speaks for is left over after this
HALF_SAVED_ROWS = re.compile(r"\.(\d+)-[^.-]+\.parquet\.[0-9a-f]+\.tmp")
FENCE = re.compile(r"(\d{5})\.(\d+)\.fence")

Ended = Mapping[int, int]  # shard_index -> attempts up to this one can commit nothing any more


@dataclass(frozen=True, slots=True)
class Garbage:
    path: Path
    size_bytes: int


def collect_garbage(layout: Layout, dry_run: bool = False, step: Step = no_step) -> list[Garbage]:
    """Removes what no receipt names and nobody needs, also while the job runs; says what. dry_run: only looks.

    Kept are what an attempt that may still commit has written, saved rows of a shard that is not committed, every file
    that it does not know, and empty Hive directories, into which a part may be about to be moved. Raises ShardRetryable
    on I/O errors, InvalidJob where a receipt is damaged.
    """
    with retryable_io(f"cannot clear {layout.output}"):
        fenced_off = {shard_index: attempt - 1 for shard_index, attempt in _fences(layout).items()}
        found = _remove(_of_ended(layout.receipts_dir, fenced_off), dry_run)
        if found and not dry_run:
            fsync_dir(layout.receipts_dir)
        step("temp_receipts_removed")
        receipts = read_receipts(layout)
        step("receipts_read")
        committed = {shard_index: receipt.attempt for shard_index, receipt in receipts.items()}
        ended = {shard: max(fenced_off.get(shard, 0), committed.get(shard, 0)) for shard in {*fenced_off, *committed}}
        named = {layout.staged_dir / receipt.staged for receipt in receipts.values()}
        generations = {shard_index: receipt.generation for shard_index, receipt in receipts.items()}
        rest = {
            *_of_ended(layout.receipts_dir, ended),
            *(path for path in _of_ended(layout.staged_dir, ended) if path not in named),
            *_saved_rows(layout, generations),
            *_half_saved_rows(layout, ended),
            *_unowned(layout),
        }
        found += _remove(iter(sorted(rest - {garbage.path for garbage in found})), dry_run)
    return found


def unknown_files(layout: Layout) -> list[Path]:
    """Files that are none of the job's: in its control directories, or where dataset readers would take them."""
    parts = {layout.output / receipt.part for receipt in read_receipts(layout).values()}
    strange = [path for path in visible_files(layout) if path not in parts]
    for directory, is_known in _KNOWN.items():
        strange += [path for path in _files(layout.control_dir / directory) if not is_known(path.name)]
    return sorted(strange)


def visible_files(layout: Layout) -> Iterator[Path]:
    """The output's files as dataset readers see them."""
    for directory, subdirs, names in os.walk(layout.output):
        subdirs[:] = [name for name in subdirs if name[0] not in "._"]
        yield from (Path(directory, name) for name in names if name[0] not in "._")


def _is_receipt(name: str) -> bool:
    return attempt_in(name) is not None or receipt_in(name) is not None


def _is_staged(name: str) -> bool:
    return attempt_in(name) is not None


_KNOWN: Mapping[str, Callable[[str], bool]] = {"receipts": _is_receipt, "staged": _is_staged}


def _fences(layout: Layout) -> dict[int, int]:
    """shard_index -> the newest attempt that has held it."""
    found = sorted(
        (int(fence[1]), int(fence[2])) for path in _files(layout.attempts_dir) if (fence := FENCE.fullmatch(path.name))
    )
    return dict(found)


def _of_ended(directory: Path, ended: Ended) -> Iterator[Path]:
    """Staged parts, half written ones and temporary receipts of attempts that have ended."""
    for path in _files(directory):
        owner = attempt_in(path.name)
        if owner is not None and owner[1] <= ended.get(owner[0], 0):
            yield path


def _wip_dirs(layout: Layout) -> Iterator[tuple[Path, int, int]]:
    """(directory, shard_index, generation)."""
    for path in layout.wips_dir.glob("*"):
        if found := generation_in(path.name):
            yield path, *found


def _saved_rows(layout: Layout, generations: Mapping[int, int]) -> Iterator[Path]:
    """Of generations that are committed. generations: the newest of each shard that is."""
    for directory, shard_index, generation in _wip_dirs(layout):
        if generation <= generations.get(shard_index, -1):
            yield from _files(directory)


def _half_saved_rows(layout: Layout, ended: Ended) -> Iterator[Path]:
    for directory, shard_index, _ in _wip_dirs(layout):
        for path in _files(directory):
            owner = HALF_SAVED_ROWS.fullmatch(path.name)
            if owner is not None and int(owner[1]) <= ended.get(shard_index, 0):
                yield path


def _unowned(layout: Layout) -> Iterator[Path]:
    """Half written plans, specs and manifests of processes that were killed."""
    for directory in (layout.output, layout.control_dir):
        for path in _files(directory):
            if path.name[0] == "." and path.suffix == ".tmp" and _age_seconds(path) > UNOWNED_SECONDS:
                yield path


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if not path.is_dir())
    except FileNotFoundError:  # removed since it was listed, or not made yet
        return []


def _age_seconds(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _remove(paths: Iterator[Path], dry_run: bool) -> list[Garbage]:
    found: list[Garbage] = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # its own process, or another's, has just removed it
            garbage = Garbage(path, path.lstat().st_size)
            if not dry_run:
                path.unlink()
            found.append(garbage)
    if not dry_run:
        _remove_empty({garbage.path.parent for garbage in found if generation_in(garbage.path.parent.name)})
    return found


def _remove_empty(directories: set[Path]) -> None:
    for directory in directories:
        with contextlib.suppress(OSError):  # an attempt that has not heard of the commit may just be adding rows
            directory.rmdir()
