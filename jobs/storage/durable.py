"""Files that are whole or not there, also after a crash: write aside, fsync, then one atomic name change."""

import glob
import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.texts import one_line
from schemas.errors import ShardRetryable


def unique_name() -> str:
    """12 hex digits that no other process draws."""
    return uuid.uuid4().hex[:12]


def write_synced(path: Path, data: bytes) -> None:
    """Creates `path` and flushes it to the disk. Raises FileExistsError where there is one."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_exclusive(path: Path, data: bytes) -> None:
    """Publishes `path` whole, once. Raises FileExistsError, whoever made it, and then changes nothing."""
    temp = temp_path(path)
    try:
        write_synced(temp, data)
        os.link(temp, path)
    finally:
        temp.unlink(missing_ok=True)
    fsync_dir(path.parent)


def create(path: Path) -> bool:
    """Creates an empty file; whether it was not there. Its name is durable once its directory is flushed."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        return False
    return True


def replace(path: Path, data: bytes) -> None:
    """Publishes `path` whole in place of what is there."""
    temp = temp_path(path)
    try:
        write_synced(temp, data)
        os.replace(temp, path)
    finally:
        temp.unlink(missing_ok=True)
    fsync_dir(path.parent)


def temp_path(path: Path) -> Path:
    """A free name beside `path` that dataset readers skip."""
    return path.with_name(f".{path.name}.{unique_name()}.tmp")


def temps_of(directory: Path, name: str) -> list[Path]:
    """What `temp_path` has named in a directory for files called `name`."""
    return sorted(directory.glob(f".{glob.escape(name)}.*.tmp"))


def fsync_file(path: Path) -> None:
    _fsync(path, os.O_RDONLY)


def fsync_dir(path: Path) -> None:
    """Makes the names in a directory as durable as the files behind them."""
    _fsync(path, os.O_RDONLY | os.O_DIRECTORY)


def make_dirs(path: Path) -> None:
    """Makes a directory and those above it, durably."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for directory in missing:
        fsync_dir(directory.parent)


def sha256_of(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def retryable_io(what: str) -> Iterator[None]:
    """Translates I/O errors inside into ShardRetryable("<what>: …")."""
    try:
        yield
    except OSError as error:
        raise ShardRetryable(f"{what}: {one_line(error)}") from error


def _fsync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
