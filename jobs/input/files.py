"""Which files an input names: one file, a directory (Hive partitions too), a glob, on any fsspec file system."""

from collections.abc import Mapping
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from jobs.input.paths import is_inside
from jobs.storage.layout import CONTROL_DIR
from jobs.texts import is_utf8
from schemas.errors import InvalidJob

SUFFIXES = (".parquet", ".pq", ".parq")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """path: as its file system knows it. partition: its Hive directories (`day=01/lang=en`), or ""."""

    path: str
    partition: str = ""


def open_input(source: str) -> tuple[Any, str]:
    """(fsspec file system, path in it). Raises InvalidJob for a scheme that is unknown or not installed."""
    try:
        file_system, path = fsspec.core.url_to_fs(source)
    except (ValueError, ImportError) as error:
        raise InvalidJob(f"cannot read the input {source}: {error}") from error
    return file_system, str(path)


def find_files(file_system: Any, path: str, output: Path) -> list[FoundFile]:
    """The input's files in the order of their names; none of them hidden (`.`, `_`), below `output`, or an
    output of another job that lies below the input.

    Raises InvalidJob where there is none. A file that is named itself may have any name.
    """
    # A file may really be called data[1].parquet: what exists is no glob.
    if file_system.isfile(path):
        return [FoundFile(path)]
    if file_system.isdir(path):
        root, paths = path, _parquet_below(file_system, path)
        nothing = f"no Parquet file (*.parquet) in the directory {path}"
    elif has_magic(path):
        root, paths = _glob_root(path), _matches(file_system, path)
        nothing = f"no Parquet file matches {path}"
    else:
        raise InvalidJob(f"no such file or directory: {path}")
    found = [_found(p, root) for p in sorted(set(paths), key=lambda p: p.split("/")) if not _is_hidden(p, root)]
    if isinstance(file_system, LocalFileSystem):
        found = [f for f in found if not is_inside(f.path, output) and not _is_of_a_job(f.path, root)]
    if not found:
        raise InvalidJob(nothing)
    for file in found:
        _check_readable(file.path)
    return found


def _check_readable(path: str) -> None:
    """Raises InvalidJob for a name that is not UTF-8: a plan is JSON, and could not hold it."""
    if not is_utf8(path):
        raise InvalidJob(f"the input's file {path!a} has a name that is not UTF-8; rename it")


def hive_pairs(partition: str) -> list[tuple[str, str]]:
    """`day=01/lang=en` as [("day", "01"), ("lang", "en")]; values stay text."""
    pairs = (part.partition("=") for part in partition.split("/") if part)
    return [(key, value) for key, _, value in pairs]


def _parquet_below(file_system: Any, directory: str, above: tuple[str, ...] = ()) -> list[str]:
    """Parquet files in a directory and those below it, links to directories followed as fsspec does not.

    above: directories that links have led here from. Raises InvalidJob for a link that leads back to one.
    """
    above = (*above, directory)
    paths: list[str] = []
    for path, info in file_system.find(directory, detail=True).items():
        if _is_directory(file_system, path, info):
            if any(is_inside(upper, Path(path)) for upper in above):
                raise InvalidJob(f"{path} is a link to a directory that it is in; name the files with a glob")
            paths += _parquet_below(file_system, path, above)
        elif path.lower().endswith(SUFFIXES):
            paths.append(path)
    return paths


def _is_directory(file_system: Any, path: str, info: Mapping[str, Any]) -> bool:
    return info["type"] == "directory" or bool(info.get("islink") and file_system.isdir(path))


def _matches(file_system: Any, pattern: str) -> list[str]:
    """Files as they match, and the Parquet files below directories that match."""
    paths: list[str] = []
    for path, info in file_system.glob(pattern, detail=True).items():
        paths += _parquet_below(file_system, path) if _is_directory(file_system, path, info) else [path]
    return paths


def _glob_root(pattern: str) -> str:
    """The directories before the first one with a wildcard."""
    parts = pattern.split("/")
    return "/".join(parts[: next(i for i, part in enumerate(parts) if has_magic(part))])


def _below(path: str, root: str) -> list[str]:
    return path[len(root.rstrip("/")) :].strip("/").split("/")


def _is_hidden(path: str, root: str) -> bool:
    return any(part.startswith((".", "_")) for part in _below(path, root))


def _is_of_a_job(path: str, root: str) -> bool:
    """Whether a directory on the way from root holds a job: its parts are an output, unless root itself is named."""
    above = [root.rstrip("/"), *_below(path, root)[:-1]]
    return any(Path("/".join(above[:depth]), CONTROL_DIR).is_dir() for depth in range(2, len(above) + 1))


def _found(path: str, root: str) -> FoundFile:
    directories = _below(path, root)[:-1]
    return FoundFile(path, "/".join(part for part in directories if part.partition("=")[1]))
