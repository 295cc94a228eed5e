"""An input read for planning: its files, their footers, one schema and the columns to generate from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from jobs.input.columns import PromptColumns, detect_columns
from jobs.input.files import FoundFile, find_files, hive_pairs, open_input
from jobs.input.footers import Footer, read_footer
from jobs.input.paths import output_dir
from jobs.input.schema import unify_schemas
from jobs.texts import one_line
from schemas.columns import part_schema
from schemas.errors import InvalidJob, SpecbatchError
from schemas.job import JobSpec
from schemas.plan import InputFile


@dataclass(frozen=True, slots=True)
class InputTable:
    """schema: the columns of every file, which are carried to the output (Hive keys are in directory names)."""

    files: tuple[InputFile, ...]
    schema: pa.Schema
    columns: PromptColumns

    @property
    def num_rows(self) -> int:
        return sum(file.num_rows for file in self.files)


def discover(spec: JobSpec) -> InputTable:
    """Reads the footers of the input's files. `spec` is resolved: its paths are absolute.

    Raises InvalidJob, one line naming the file, column or option, for everything that is wrong with them.
    """
    output = output_dir(spec)
    file_system, path = open_input(spec.input)
    try:
        found = find_files(file_system, path, output)
        footers = [_read_footer(file_system, file.path) for file in found]
    except SpecbatchError:
        raise
    except _foreign_errors(file_system) as error:
        raise InvalidJob(f"cannot read the input {spec.input}: {one_line(error)}") from error
    schema = unify_schemas((file.path, footer.schema) for file, footer in zip(found, footers, strict=True))
    _check_part_schema(spec, schema, _hive_keys(found))
    files = tuple(_input_files(file_system, found, footers))
    return InputTable(files, schema, detect_columns(spec, schema))


def _foreign_errors(file_system: Any) -> type[Exception]:
    # Every object store's client has error classes of its own.
    return OSError if isinstance(file_system, LocalFileSystem) else Exception


def _read_footer(file_system: Any, path: str) -> Footer:
    with file_system.open(path, "rb") as file:
        return read_footer(file, path)


def _input_files(file_system: Any, found: Sequence[FoundFile], footers: Sequence[Footer]) -> Iterator[InputFile]:
    is_local = isinstance(file_system, LocalFileSystem)
    first_row = 0
    for file, footer in zip(found, footers, strict=True):
        yield InputFile(
            path=file.path if is_local else file_system.unstrip_protocol(file.path),
            partition=file.partition,
            first_row=first_row,
            num_rows=footer.num_rows,
            size_bytes=footer.size_bytes,
            footer_sha256=footer.sha256,
        )
        first_row += footer.num_rows


def _hive_keys(found: Sequence[FoundFile]) -> list[str]:
    """The keys of the Hive directories, the same for all files. Raises InvalidJob where they are not."""
    keys = [key for key, _ in hive_pairs(found[0].partition)]
    for file in found:
        if [key for key, _ in hive_pairs(file.partition)] != keys:
            raise InvalidJob(
                f"{found[0].path} and {file.path} are below different Hive keys ({found[0].partition or 'none'}, "
                f"{file.partition or 'none'}); files must agree"
            )
    return keys


def _check_part_schema(spec: JobSpec, schema: pa.Schema, hive_keys: Sequence[str]) -> None:
    """Raises InvalidJob where a column or Hive key has the name of one that the output adds."""
    keys = [pa.field(key, pa.string()) for key in hive_keys if key not in schema.names]
    part_schema(pa.schema([*schema, *keys]), spec.save_token_ids, spec.output_prefix)
