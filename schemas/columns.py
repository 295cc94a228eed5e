"""The columns that a job adds to its input, and the Parquet schema of a part."""

import pyarrow as pa

from schemas.errors import InvalidJob

RESULT_FIELDS: tuple[pa.Field, ...] = (
    pa.field("row_index", pa.int64(), nullable=False),
    pa.field("sample_index", pa.int32(), nullable=False),
    pa.field("status", pa.string(), nullable=False),
    pa.field("error_kind", pa.string()),
    pa.field("error_message", pa.string()),
    pa.field("completion", pa.string()),
    pa.field("finish_reason", pa.string()),
    pa.field("prompt_tokens", pa.int32()),
    pa.field("completion_tokens", pa.int32()),
    pa.field("completion_token_ids", pa.list_(pa.int32())),
    pa.field("seed", pa.int64()),
    pa.field("num_target_steps", pa.int32()),
    pa.field("num_spec_steps", pa.int32()),
    pa.field("num_draft_tokens", pa.int32()),
    pa.field("num_accepted_draft_tokens", pa.int32()),
    pa.field("num_cut_target_tokens", pa.int32()),
    pa.field("draft_acceptance_rate", pa.float32()),
    pa.field("mean_acceptance_length", pa.float32()),
    pa.field("acceptance_histogram", pa.list_(pa.int32())),
)


def result_fields(save_token_ids: bool, prefix: str = "") -> list[pa.Field]:
    """The added columns in order, renamed with the job's --output-prefix."""
    kept = (f for f in RESULT_FIELDS if save_token_ids or f.name != "completion_token_ids")
    return [f.with_name(prefix + f.name) for f in kept]


def part_schema(carried: pa.Schema, save_token_ids: bool, prefix: str = "") -> pa.Schema:
    """The carried columns, then the added ones. Raises InvalidJob where two have the same name."""
    added = result_fields(save_token_ids, prefix)
    clashes = sorted({f.name for f in added} & set(carried.names))
    if clashes:
        raise InvalidJob(
            f"the input already has the column {clashes[0]!r} that the output adds; give --output-prefix, or rename it"
        )
    return pa.schema([*carried, *added])
