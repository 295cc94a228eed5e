"""Records: the JSON files of a job's output directory."""

from pathlib import Path
from typing import TypeVar

from schemas.errors import InvalidJob
from schemas.values import Value

V = TypeVar("V", bound=Value)


def read_record(kind: type[V], path: Path) -> V | None:
    """The value in a file; None where there is no file. Raises InvalidJob, naming it, where it is damaged."""
    try:
        return kind.from_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except InvalidJob as error:
        raise InvalidJob(f"{path} cannot be read: {error}") from error


def record_bytes(value: Value) -> bytes:
    """As `read_record` reads it: one line of JSON."""
    return value.to_json().encode() + b"\n"
