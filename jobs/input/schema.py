"""One Arrow schema for all files of an input, or the first column that they disagree about."""

import base64
from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.types as pat

from schemas.errors import InvalidJob

# pandas, polars and Spark write the same column with either of these; in Parquet they are one type.
TEXT_TYPES = (pa.string(), pa.large_string(), pa.string_view())
BINARY_TYPES = (pa.binary(), pa.large_binary(), pa.binary_view())


def unify_schemas(schemas: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """(path, schema) of each file to the schema of the first, with its metadata, where all agree.

    string and large_string, list and large_list agree; the null type (a column that is null throughout a file)
    agrees with every type. Raises InvalidJob naming files, column and types.
    """
    named = iter(schemas)
    first_path, schema = next(named)
    _check_names(first_path, schema)
    for path, other in named:
        if not other.equals(schema):
            schema = _unify(first_path, schema, path, other)
    return schema


def encode_schema(schema: pa.Schema) -> str:
    """Arrow IPC bytes in base64: the schema as JSON can keep it, metadata too."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def decode_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _check_names(path: str, schema: pa.Schema) -> None:
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise InvalidJob(f"{path} has several columns named {twice[0]!r}; rename them")


def _unify(first_path: str, schema: pa.Schema, path: str, other: pa.Schema) -> pa.Schema:
    _check_names(path, other)
    for name in other.names:
        if name not in schema.names:
            raise InvalidJob(f"{path} has the column {name!r}, which {first_path} has not; files must agree")
    return pa.schema([_unify_column(first_path, field, path, other) for field in schema], metadata=schema.metadata)


def _unify_column(first_path: str, field: pa.Field, path: str, other: pa.Schema) -> pa.Field:
    if field.name not in other.names:
        raise InvalidJob(f"{path} has no column {field.name!r}, which {first_path} has; files must agree")
    unified = unify_fields(field, other.field(field.name))
    if unified is None:
        raise InvalidJob(
            f"column {field.name!r} is {field.type} in {first_path} and {other.field(field.name).type} in {path}; "
            f"files must agree"
        )
    return unified


def unify_fields(a: pa.Field, b: pa.Field) -> pa.Field | None:
    """`a`, widened to hold `b` too (null type, nullability); None where their types disagree."""
    unified = unify_types(a.type, b.type)
    if unified is None:
        return None
    return a.with_type(unified).with_nullable(a.nullable or b.nullable)


def unify_types(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type of `a` where it agrees with `b`, else None; null gives way."""
    if a.equals(b) or pat.is_null(b) or _both_in(TEXT_TYPES, a, b) or _both_in(BINARY_TYPES, a, b):
        return a
    if pat.is_null(a):
        return b
    if _is_list(a) and _is_list(b):
        return _unify_lists(a, b)
    if pat.is_struct(a) and pat.is_struct(b):
        return _unify_structs(a, b)
    if pat.is_dictionary(a) and pat.is_dictionary(b) and a.value_type.equals(b.value_type):
        # pandas sizes the indices by the number of categories, file by file.
        return pa.dictionary(pa.int32(), a.value_type, a.ordered and b.ordered)
    return None


def _both_in(types: tuple[pa.DataType, ...], a: pa.DataType, b: pa.DataType) -> bool:
    return a in types and b in types


def _is_list(kind: pa.DataType) -> bool:
    return bool(pat.is_list(kind) or pat.is_large_list(kind))


def _unify_lists(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    element = unify_fields(a.value_field, b.value_field)
    if element is None:
        return None
    return pa.list_(element) if pat.is_list(a) else pa.large_list(element)


def _unify_structs(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if [field.name for field in a] != [field.name for field in b]:
        return None
    fields = [unify_fields(x, y) for x, y in zip(a, b, strict=True)]
    return None if any(field is None for field in fields) else pa.struct(fields)
