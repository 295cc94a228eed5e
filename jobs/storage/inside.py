"""An output directory is written to inside only: no job makes symbolic links, so one there would lead writes away."""

import os
from pathlib import Path

from jobs.storage.layout import Layout
from schemas.errors import InvalidJob


def check_inside(directory: Path, layout: Layout) -> None:
    """directory: of a part, made or not. Raises InvalidJob where a link leads it out of the output."""
    if not Path(os.path.realpath(directory)).is_relative_to(os.path.realpath(layout.output)):
        raise InvalidJob(f"{directory} leads out of {layout.output}; choose another --output")


def check_untouched(layout: Layout) -> None:
    """Raises InvalidJob for a link among the job's own files. The output itself may be reached by one."""
    for path in (layout.control_dir, *_entries(layout.control_dir), *_entries(layout.wips_dir)):
        if path.is_symlink():
            raise InvalidJob(f"{path} is a link, which no job has made; choose another --output")


def _entries(directory: Path) -> list[Path]:
    try:
        return [directory / name for name in os.listdir(directory)]
    except (FileNotFoundError, NotADirectoryError):
        return []
