"""Whether two columns hold the same values, of any type that a Parquet file may have."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

# type -> (integer of its width, all bits but the sign, infinity): above infinity is NaN, whose other bits mean nothing.
FLOATS: dict[pa.DataType, tuple[pa.DataType, int, int]] = {
    pa.float16(): (pa.int16(), 0x7FFF, 0x7C00),
    pa.float32(): (pa.int32(), 0x7FFF_FFFF, 0x7F80_0000),
    pa.float64(): (pa.int64(), 0x7FFF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000),
}


def same_values(a: pa.Array, b: pa.Array) -> bool:
    """Value by value: NaN is NaN, and how categories are numbered does not matter. -0.0 is not 0.0."""
    if a.type != b.type or len(a) != len(b):
        return False
    if not _is_plain(a.type):
        return _same_parts(a, b)
    return bool(a.equals(b))


def _same_parts(a: pa.Array, b: pa.Array) -> bool:
    if isinstance(a.type, pa.BaseExtensionType):
        return same_values(a.storage, b.storage)
    if pat.is_dictionary(a.type):
        return same_values(a.dictionary_decode(), b.dictionary_decode())
    if not a.is_null().equals(b.is_null()):
        return False
    if pat.is_struct(a.type):
        # flatten: a member is null where its struct is.
        return all(same_values(x, y) for x, y in zip(a.flatten(), b.flatten(), strict=True))
    a, b = a.drop_null(), b.drop_null()
    if a.type in FLOATS:
        return bool(_canonical_bits(a).equals(_canonical_bits(b)))
    return bool(_lengths(a).equals(_lengths(b))) and same_values(_members(a), _members(b))


def _lengths(lists: pa.Array) -> pa.Array:
    """lists, here and below: without nulls."""
    if pat.is_map(lists.type):  # which Arrow's functions of lists leave out
        return pc.subtract(lists.offsets[1:], lists.offsets[:-1])
    return pc.list_value_length(lists)


def _members(lists: pa.Array) -> pa.Array:
    if pat.is_map(lists.type):
        entries = slice(lists.offsets[0].as_py(), lists.offsets[-1].as_py())
        return pa.StructArray.from_arrays([lists.keys[entries], lists.items[entries]], ["key", "value"])
    return lists.flatten()


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Arrow's own comparison is ours."""
    if isinstance(kind, pa.BaseExtensionType):
        return _is_plain(kind.storage_type)
    return kind not in FLOATS and not pat.is_dictionary(kind) and all(_is_plain(part) for part in _parts(kind))


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    return [kind.field(index).type for index in range(kind.num_fields)]


def _canonical_bits(values: pa.Array) -> pa.Array:
    bits_type, magnitude, infinity = FLOATS[values.type]
    bits = values.view(bits_type)
    is_nan = pc.greater(pc.bit_wise_and(bits, pa.scalar(magnitude, bits_type)), pa.scalar(infinity, bits_type))
    return pc.if_else(is_nan, pa.scalar(magnitude, bits_type), bits)
