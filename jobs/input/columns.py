"""Which columns of an input to generate from, by name or by the job's options."""

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.types as pat

from schemas.errors import InvalidJob
from schemas.job import JobSpec

PROMPT, MESSAGES, ID, PARAMS = "prompt", "messages", "id", "params"
NUM_NAMES_SHOWN = 20
MESSAGES_SHAPE = "a list of {role, content}"


@dataclass(frozen=True, slots=True)
class PromptColumns:
    """id_column, params_column: None where the input has none."""

    prompt_kind: Literal["prompt", "messages"]
    prompt_column: str
    id_column: str | None
    params_column: str | None


def detect_columns(spec: JobSpec, schema: pa.Schema) -> PromptColumns:
    """Raises InvalidJob where a column is missing, of the wrong type, or where there are two to choose from."""
    kind, name = _prompt_column(spec, schema)
    if kind == "prompt" and spec.system_prompt is not None:
        raise InvalidJob(
            f"--system-prompt needs chat messages, and the input's {name!r} is plain text; put it into the prompts, "
            f"or give a column of {MESSAGES_SHAPE}"
        )
    id_column = _optional_column("--id-column", spec.id_column, ID, schema)
    params_column = _optional_column("--params-column", spec.params_column, PARAMS, schema)
    if params_column is not None:
        _check_params(params_column, schema)
    return PromptColumns(kind, name, id_column, params_column)


def is_text(kind: pa.DataType) -> bool:
    """Whether values are text; a column that is null throughout counts, its rows become errors."""
    if pat.is_dictionary(kind):
        return is_text(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):  # Parquet's JSON type
        return is_text(kind.storage_type)
    return bool(pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind) or pat.is_null(kind))


def is_messages(kind: pa.DataType) -> bool:
    """Whether values are lists of {role, content}; empty or null throughout counts."""
    if pat.is_null(kind):
        return True
    if not (pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind)):
        return False
    message = kind.value_type
    return bool(pat.is_null(message)) or (
        bool(pat.is_struct(message)) and {"role", "content"} <= {f.name for f in message}
    )


def _prompt_column(spec: JobSpec, schema: pa.Schema) -> tuple[Literal["prompt", "messages"], str]:
    if spec.prompt_column is not None:
        _check_named("--prompt-column", spec.prompt_column, schema)
        _check_text(spec.prompt_column, schema)
        return "prompt", spec.prompt_column
    if spec.messages_column is not None:
        _check_named("--messages-column", spec.messages_column, schema)
        _check_messages(spec.messages_column, schema)
        return "messages", spec.messages_column
    return _detected_prompt(schema)


def _detected_prompt(schema: pa.Schema) -> tuple[Literal["prompt", "messages"], str]:
    has_prompt = PROMPT in schema.names and is_text(schema.field(PROMPT).type)
    has_messages = MESSAGES in schema.names and is_messages(schema.field(MESSAGES).type)
    if has_prompt and has_messages:
        raise InvalidJob(
            f"the input has both {PROMPT!r} and {MESSAGES!r}; say which with --prompt-column {PROMPT} or "
            f"--messages-column {MESSAGES}"
        )
    if has_prompt:
        return "prompt", PROMPT
    if has_messages:
        return "messages", MESSAGES
    if PROMPT in schema.names:
        _check_text(PROMPT, schema)
    if MESSAGES in schema.names:
        _check_messages(MESSAGES, schema)
    raise InvalidJob(
        f"the input has no column {PROMPT!r} or {MESSAGES!r}; its columns are {_names(schema)}; "
        f"name one with --prompt-column or --messages-column"
    )


def _optional_column(option: str, named: str | None, usual: str, schema: pa.Schema) -> str | None:
    if named is not None:
        _check_named(option, named, schema)
        return named
    return usual if usual in schema.names else None


def _check_named(option: str, name: str, schema: pa.Schema) -> None:
    if name not in schema.names:
        raise InvalidJob(f"{option} {name}: the input has no such column; its columns are {_names(schema)}")


def _check_text(name: str, schema: pa.Schema) -> None:
    kind = schema.field(name).type
    if is_text(kind):
        return
    other = f"; give it as --messages-column {name}" if is_messages(kind) else ""
    raise InvalidJob(f"the prompt column {name!r} is {kind}, not string{other}")


def _check_messages(name: str, schema: pa.Schema) -> None:
    kind = schema.field(name).type
    if is_messages(kind):
        return
    other = f"; give it as --prompt-column {name}" if is_text(kind) else ""
    raise InvalidJob(f"the messages column {name!r} is {kind}, not {MESSAGES_SHAPE}{other}")


def _check_params(name: str, schema: pa.Schema) -> None:
    kind = schema.field(name).type
    if not (is_text(kind) or pat.is_struct(kind)):
        raise InvalidJob(
            f"the params column {name!r} is {kind}, not a struct or JSON text; rename it, or name another with "
            f"--params-column"
        )


def _names(schema: pa.Schema) -> str:
    shown = ", ".join(schema.names[:NUM_NAMES_SHOWN]) or "none"
    num_more = len(schema.names) - NUM_NAMES_SHOWN
    return f"{shown} and {num_more} more" if num_more > 0 else shown
