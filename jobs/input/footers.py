"""A Parquet file's footer: its schema and rows, read without its data, and its fingerprint."""

import hashlib
import os
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.texts import one_line
from schemas.errors import InvalidJob

MAGIC = b"PAR1"
TAIL_BYTES = 64 * 1024  # most footers come with the first read, which matters on object stores
LENGTH_AND_MAGIC_BYTES = 8


class Readable(Protocol):
    """What is asked of an open file."""

    def read(self, num_bytes: int = -1, /) -> bytes: ...

    def seek(self, offset: int, whence: int = 0, /) -> int: ...


@dataclass(frozen=True, slots=True)
class Footer:
    """sha256: of the footer's bytes; with size_bytes, the file's fingerprint."""

    size_bytes: int
    sha256: str
    metadata: Any
    schema: pa.Schema

    @property
    def num_rows(self) -> int:
        return int(self.metadata.num_rows)


def read_footer(file: Readable, path: str) -> Footer:
    """Reads the end of an open file. Raises InvalidJob, naming `path`, where it is not a whole Parquet file."""
    size_bytes = file.seek(0, os.SEEK_END)
    if size_bytes == 0:
        raise InvalidJob(f"{path} is empty (0 bytes), not a Parquet file")
    tail = _read_end(file, size_bytes, TAIL_BYTES)
    if not tail.endswith(MAGIC) or size_bytes < len(MAGIC) + LENGTH_AND_MAGIC_BYTES:
        raise InvalidJob(_no_footer(file, path))
    num_footer_bytes = int.from_bytes(tail[-8:-4], "little")
    if num_footer_bytes > size_bytes - len(MAGIC) - LENGTH_AND_MAGIC_BYTES:
        raise InvalidJob(f"{path} is not a whole Parquet file: its footer is damaged")
    if num_footer_bytes + LENGTH_AND_MAGIC_BYTES > len(tail):
        tail = _read_end(file, size_bytes, num_footer_bytes + LENGTH_AND_MAGIC_BYTES)
    return _parse(tail[-num_footer_bytes - LENGTH_AND_MAGIC_BYTES :], size_bytes, path)


def _read_end(file: Readable, size_bytes: int, num_bytes: int) -> bytes:
    file.seek(max(0, size_bytes - num_bytes))
    return file.read(num_bytes)


def _no_footer(file: Readable, path: str) -> str:
    file.seek(0)
    if file.read(len(MAGIC)) == MAGIC:
        return f"{path} is not a whole Parquet file: its footer is missing; was it written to the end?"
    return f"{path} is not a Parquet file"


def _parse(ending: bytes, size_bytes: int, path: str) -> Footer:
    """ending: the footer with its length and magic. Arrow reads a footer from a file without data as well."""
    try:
        parquet = pq.ParquetFile(pa.BufferReader(MAGIC + ending))
        schema = parquet.schema_arrow
        _check_rows(parquet.metadata)
    # ValueError: names that are not UTF-8, which Arrow decodes one by one when it is asked for them.
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidJob(f"{path} has a footer that cannot be read: {one_line(error)}") from error
    digest = hashlib.sha256(ending[:-LENGTH_AND_MAGIC_BYTES]).hexdigest()
    return Footer(size_bytes, digest, parquet.metadata, schema)


def _check_rows(metadata: Any) -> None:
    """Raises ValueError where the footer contradicts itself: what a shard holds is planned by these counts."""
    counts = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    if any(count < 0 for count in counts) or sum(counts) != metadata.num_rows:
        raise ValueError(f"{metadata.num_rows} rows, but {sum(counts)} in its row groups")
