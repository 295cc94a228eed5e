"""Receipt: the durable record that a shard is committed. Manifest: the receipts of a finished job."""

from typing import Literal

from pydantic import JsonValue

from schemas.names import PartPath, StagedName
from schemas.values import Value


class ShardStatistics(Value):
    """Sums over the ok samples of a shard's rows; seconds are those of the attempts that made its generations.

    generate_seconds: with checkpoint_seconds, in which finished rows were saved. commit_seconds: until the receipt.
    """

    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    num_target_steps: int = 0
    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    num_cut_target_tokens: int = 0
    generate_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    load_seconds: float = 0.0
    commit_seconds: float = 0.0


class Receipt(Value):
    """Shard `shard_index` is committed. The part is `part` once in place, `staged` until then.

    num_rows: of the input. num_samples = num_ok + num_failed: of the part, one for each sample of a row.
    shapes: what was warmed up, shapes that came up later all the same, and shares of what was computed in vain.
    speculation: the draft-length controller's decisions and estimates; `rounds_by_k` counts rounds by source and k.
    """

    schema_version: Literal[1] = 1
    job_id: str
    shard_index: int
    generation: int = 0
    attempt: int
    staged: StagedName
    part: PartPath
    first_row: int
    num_rows: int
    num_samples: int
    num_ok: int
    num_failed: int
    size_bytes: int
    sha256: str
    worker: str
    committed_at: str
    statistics: ShardStatistics = ShardStatistics()
    speculation: dict[str, JsonValue] | None = None
    shapes: dict[str, JsonValue] | None = None


class Manifest(Value):
    """A finished job: every shard's receipt, and their sums."""

    schema_version: Literal[1] = 1
    job_id: str
    spec_sha256: str
    num_rows: int
    num_samples: int
    num_ok: int
    num_failed: int
    finished_at: str
    statistics: ShardStatistics
    receipts: tuple[Receipt, ...]
