"""Records: the JSON files of a job's output directory."""

import errno
from pathlib import Path
from typing import TypeVar

from jobs.texts import one_line
from schemas.errors import DamagedRecord, InvalidJob
from schemas.values import Value

V = TypeVar("V", bound=Value)


def read_record(kind: type[V], path: Path) -> V | None:
    """The value in a file; None where there is no file. Raises DamagedRecord, naming it and what to do."""
    try:
        return kind.from_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (InvalidJob, IsADirectoryError) as error:
        raise DamagedRecord(f"{path} is damaged: {one_line(error)}; {_remedy(path)}") from error
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise DamagedRecord(f"{path} is a link to itself; {_remedy(path)}") from error


def _remedy(path: Path) -> str:
    if path.parent.name == "receipts":
        return "remove it, and jobctl resume makes its rows again"
    return "restore it from a copy"


def record_bytes(value: Value) -> bytes:
    """As `read_record` reads it: one line of JSON."""
    return value.to_json().encode() + b"\n"
