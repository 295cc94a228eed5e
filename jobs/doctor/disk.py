"""The checks of directories: what the commit protocol needs of a file system, and room on it."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from jobs.doctor.finding import Finding, fail, ok, warn
from jobs.doctor.sizes import shown_size
from jobs.storage.durable import fsync_dir, write_synced
from jobs.texts import one_line

NEARLY_FULL_BYTES, FULL_BYTES = 2 * 2**30, 100 * 2**20


def check_data_dir(path: Path) -> Iterator[Finding]:
    """Where the embedded broker, logs and schedules live."""
    yield _probe("data directory", path, "set JOBCTL_DATA_DIR", _write)
    yield _room("data directory space", path)


def check_output_dir(path: Path) -> Iterator[Finding]:
    """Where a job's output is, or is to be."""
    for check, step in STEPS.items():
        yield _probe(check, path, "choose another --output", step)
    yield _room("output space", path)


class Unfit(OSError):
    """The file system answers, and does not do what it should."""


def _probe(check: str, path: Path, advice: str, step: Callable[[Path], None]) -> Finding:
    """The step in a directory of its own, which is then removed; above `path` where that is not there."""
    above = _nearest(path)
    try:
        with tempfile.TemporaryDirectory(prefix=".jobctl-doctor-", dir=above) as directory:
            step(Path(directory))
    except OSError as error:
        return fail(check, f"{above}: {error.strerror or one_line(error)}; {advice}")
    return ok(check, f"works in {above}")


def _nearest(path: Path) -> Path:
    path = path.expanduser().absolute()
    return next(one for one in (path, *path.parents) if one.exists())


def _write(directory: Path) -> None:
    (directory / "file").write_bytes(b"written")
    if (directory / "file").read_bytes() != b"written":
        raise Unfit("what was written is not read back")


def _create(directory: Path) -> None:
    write_synced(directory / "file", b"first")
    try:
        write_synced(directory / "file", b"second")
    except FileExistsError:
        return
    raise Unfit("a file is created though it is there")


def _link(directory: Path) -> None:
    _write(directory)
    os.link(directory / "file", directory / "link")
    try:
        os.link(directory / "file", directory / "link")
    except FileExistsError:
        return
    raise Unfit("a link is made though its name is taken")


def _fsync(directory: Path) -> None:
    write_synced(directory / "file", b"written")
    fsync_dir(directory)


def _rename(directory: Path) -> None:
    _write(directory)
    (directory / "other").write_bytes(b"there before")
    os.replace(directory / "file", directory / "other")
    if (directory / "other").read_bytes() != b"written" or (directory / "file").exists():
        raise Unfit("a file that was renamed is not in the other's place")


# What the commit protocol relies on.
STEPS = {
    "output directory": _write,
    "exclusive create": _create,
    "hard links": _link,
    "fsync": _fsync,
    "rename": _rename,
}


def _room(check: str, path: Path) -> Finding:
    above = _nearest(path)
    free = shutil.disk_usage(above).free
    what = f"{shown_size(free)} free at {above}"
    if free >= NEARLY_FULL_BYTES:
        return ok(check, what)
    return (warn if free >= FULL_BYTES else fail)(check, f"{what}; make room")
