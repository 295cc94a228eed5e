"""Plan: which rows of which files make which shard. Saved before anything is queued, never recomputed."""

from typing import Literal

from schemas.job import JobSpec
from schemas.names import HivePath
from schemas.values import Value


class InputFile(Value):
    """One Parquet file of the input.

    path: as fsspec or the file system knows it. partition: its Hive directory (`day=01/lang=en`), or "".
    first_row: row_index of its first row. footer_sha256: with size_bytes, its fingerprint.
    """

    path: str
    partition: str = ""
    first_row: int
    num_rows: int
    size_bytes: int
    footer_sha256: str


class ShardPlan(Value):
    """Rows [first_row, first_row + num_rows) of the input; they never cross a Hive directory."""

    shard_index: int
    first_row: int
    num_rows: int
    partition: HivePath = ""

    @property
    def end_row(self) -> int:
        return self.first_row + self.num_rows


class Plan(Value):
    """A job's rows, tiled by its shards exactly once.

    prompt_kind, prompt_column: the column to generate from, after detection.
    id_column, params_column: after detection; None where the input has none.
    arrow_schema: of the input's columns, the same for all files: Arrow IPC bytes in base64.
    """

    schema_version: Literal[1] = 1
    job_id: str
    spec: JobSpec
    prompt_kind: Literal["prompt", "messages"]
    prompt_column: str
    id_column: str | None = None
    params_column: str | None = None
    arrow_schema: str = ""
    num_rows: int
    files: tuple[InputFile, ...]
    shards: tuple[ShardPlan, ...]
    created_at: str
