"""Where a job reads and writes: input and output made absolute, and kept apart."""

import os
from pathlib import Path
from urllib.parse import urlsplit

from schemas.errors import InvalidJob
from schemas.job import JobSpec


def is_url(path: str) -> bool:
    return "://" in path


def resolve_paths(spec: JobSpec) -> JobSpec:
    """The spec with absolute paths, so that a worker elsewhere on this file system finds them.

    Raises InvalidJob for an output that is a URL or the input itself, for chained URLs (`a::b`), and for
    a password in one.
    """
    source = spec.input.removeprefix("file://")
    if not is_url(source):
        source = os.path.abspath(os.path.expanduser(source))
    elif urlsplit(source).password is not None:
        raise InvalidJob("the input's URL has a password, which would be kept in the plan; name it to fsspec instead")
    elif "::" in source:
        raise InvalidJob(f"chained URLs are not supported: {source}; give the inner one")
    output = output_dir(spec)
    if not is_url(source) and os.path.realpath(source) == os.path.realpath(output):
        raise InvalidJob(f"--output {output} is the input itself; choose another --output")
    return spec.model_copy(update={"input": source, "output": str(output)})


def output_dir(spec: JobSpec) -> Path:
    """The absolute output directory. Raises InvalidJob for a URL, and for a name that cannot be."""
    if is_url(spec.output):
        raise InvalidJob(f"--output {spec.output} is a URL; this version writes to local file systems only")
    output = Path(os.path.abspath(os.path.expanduser(spec.output)))
    try:
        os.lstat(output)
    except (FileNotFoundError, NotADirectoryError):
        return output  # what lies above it is looked at when it is made
    except OSError as error:
        raise InvalidJob(f"cannot use --output {output}: {error.strerror}; choose another --output") from error
    return output


def is_inside(path: str, directory: Path) -> bool:
    """Whether a local path is `directory` or below it, symbolic links followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))
