"""The output directory before a job owns it: whether it is free, and how it is taken."""

import contextlib
import errno
from collections.abc import Sequence
from pathlib import Path

from jobs.storage.durable import make_dirs, write_exclusive
from jobs.storage.layout import CONTROL_DIR, Layout
from schemas.errors import InvalidJob

NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def check_free(layout: Layout) -> None:
    """Raises InvalidJob where the output is a file, or a directory with something in it that is not a job's."""
    output = layout.output
    try:
        names = sorted(path.name for path in output.iterdir())
    except FileNotFoundError:
        if output.is_symlink():
            raise InvalidJob(f"cannot use --output {output}: a link to nothing; choose another --output") from None
        return
    except OSError as error:
        raise InvalidJob(f"cannot use --output {output}: {error.strerror}; choose another --output") from error
    foreign = [name for name in names if name != CONTROL_DIR] or _kept_files(layout)
    # Another submitter may have published its plan since the caller looked: create_output then finds it.
    if foreign and not layout.plan_path.exists():
        raise InvalidJob(
            f"--output {output} is not empty (it has {foreign[0]}) and holds no job; choose another --output"
        )


def create_output(layout: Layout, plan_json: bytes) -> None:
    """Makes the directories and publishes the plan, or leaves nothing behind.

    Raises FileExistsError where another submitter has just published its plan; InvalidJob where the directory
    cannot be written to. A plan that was published before the disk failed stays, for the next submit to go by.
    """
    subdirs = (layout.attempts_dir, layout.staged_dir, layout.receipts_dir, layout.wips_dir)
    above = (layout.control_dir, layout.output, *layout.output.parents)
    new = [directory for directory in (*subdirs, *above) if not directory.exists()]
    try:
        for directory in subdirs:
            make_dirs(directory)
        write_exclusive(layout.plan_path, plan_json)
    except FileExistsError:
        raise
    except OSError as error:
        if not layout.plan_path.exists():
            _remove_empty(new)
        raise InvalidJob(cannot_write(layout, error)) from error


def _remove_empty(directories: Sequence[Path]) -> None:
    # Of a disk that fails the first error is the one to tell.
    with contextlib.suppress(OSError):
        for directory in directories:
            if directory.is_dir():
                directory.rmdir()


def _kept_files(layout: Layout) -> list[str]:
    """Files of a job whose plan is gone. A submit that was killed leaves only empty directories and `.` files."""
    if layout.control_dir.is_file():
        return [CONTROL_DIR]
    files = (path for path in layout.control_dir.rglob("*") if path.is_file() and path.name[0] != ".")
    return sorted(str(path.relative_to(layout.output)) for path in files)


def cannot_write(layout: Layout, error: OSError) -> str:
    """What a user is told."""
    needs = " (it must have hard links)" if error.errno in NO_HARD_LINKS else ""
    return f"cannot write to --output {layout.output}: {error.strerror}{needs}; choose another --output"
