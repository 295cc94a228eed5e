"""Which batch sizes a job's memory had no room for: remembered in its directory, for every worker and attempt."""

import os

from jobs.storage.durable import fsync_dir, make_dirs
from jobs.storage.layout import Layout


def note_too_large(layout: Layout, batch_size: int) -> None:
    """Durably. Raises OSError."""
    make_dirs(layout.batch_sizes_dir)
    (layout.batch_sizes_dir / str(batch_size)).touch()
    fsync_dir(layout.batch_sizes_dir)


def fitting_batch_size(layout: Layout, batch_size: int) -> int:
    """The largest of batch_size, its half, … 1 that is below every size that did not fit."""
    try:
        too_large = min((int(name) for name in os.listdir(layout.batch_sizes_dir) if name.isdecimal()), default=None)
    except FileNotFoundError:  # everything has fitted so far
        return batch_size
    while too_large is not None and batch_size >= too_large and batch_size > 1:
        batch_size = smaller(batch_size)
    return batch_size


def smaller(batch_size: int) -> int:
    """The next planned size; 0 below 1."""
    return batch_size // 2
