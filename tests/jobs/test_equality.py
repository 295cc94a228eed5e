"""Equality of columns: of every type, through a Parquet file and back, and told apart by any one value."""

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.input.equality import same_values

NAN, OTHER_NAN = float("nan"), pa.array([0x7FF8_0000_0000_0001], pa.int64()).view(pa.float64())[0].as_py()
TWO: dict[str, tuple[pa.DataType, Any, Any]] = {
    "int": (pa.int64(), 1, 2),
    "bool": (pa.bool_(), True, False),
    "half": (pa.float16(), NAN, 1.0),
    "float": (pa.float32(), NAN, 1.5),
    "double": (pa.float64(), NAN, float("inf")),
    "signed zero": (pa.float64(), 0.0, -0.0),
    "text": (pa.string(), "a", "b"),
    "large text": (pa.large_string(), "a", "b"),
    "text view": (pa.string_view(), "a", "a text that is longer than twelve bytes"),
    "binary": (pa.binary(), b"\xff", b""),
    "fixed binary": (pa.binary(2), b"ab", b"cd"),
    "decimal": (pa.decimal128(10, 2), decimal.Decimal("1.00"), decimal.Decimal("1.01")),
    "date": (pa.date32(), datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)),
    "time": (pa.time64("us"), datetime.time(1), datetime.time(2)),
    "timestamp": (pa.timestamp("ns", "UTC"), 1, 2),
    "duration": (pa.duration("s"), 1, 2),
    "category": (pa.dictionary(pa.int32(), pa.string()), "a", "b"),
    "list": (pa.list_(pa.float64()), [NAN, None], [NAN]),
    "empty list": (pa.list_(pa.float64()), [], None),
    "large list": (pa.large_list(pa.string()), ["a"], ["a", None]),
    "fixed list": (pa.list_(pa.float32(), 2), [NAN, 1], [1, NAN]),
    "struct": (pa.struct([("x", pa.float64()), ("y", pa.string())]), {"x": NAN, "y": "a"}, {"x": NAN, "y": "b"}),
    "struct of nulls": (pa.struct([("x", pa.float64())]), {"x": None}, None),
    "map": (pa.map_(pa.string(), pa.float64()), [("k", NAN)], [("l", NAN)]),
    "json": (pa.json_(), "[1]", "[2]"),
    "uuid": (pa.uuid(), b"0123456789abcdef", b"0123456789abcdeF"),
    "nested": (
        pa.list_(pa.struct([("c", pa.dictionary(pa.int32(), pa.string())), ("f", pa.list_(pa.float32()))])),
        [{"c": "a", "f": [NAN]}],
        [{"c": "b", "f": [NAN]}],
    ),
}


def array_of(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


@pytest.mark.parametrize("name", TWO)
def test_a_column_read_back_is_the_same_and_one_with_another_value_is_not(tmp_path: Path, name: str) -> None:
    kind, one, other = TWO[name]
    values = array_of(kind, [other, one, None, one, other])
    pq.write_table(pa.table({"x": values}), tmp_path / "x.parquet", compression="zstd")
    read = pq.read_table(tmp_path / "x.parquet")["x"].combine_chunks()
    read = read.chunk(0) if isinstance(read, pa.ChunkedArray) else read
    assert same_values(values, read.cast(kind) if read.type != kind else read)
    for changed in ([other, other, None, one, other], [other, one, one, one, other], [other, one, None, one]):
        assert not same_values(values, array_of(kind, changed))
    assert same_values(values[1:4], array_of(kind, [one, None, one]))
    assert not same_values(values[1:4], array_of(kind, [one, None, other]))


def test_every_nan_is_the_same_and_types_are_not() -> None:
    assert same_values(pa.array([NAN]), pa.array([OTHER_NAN]))
    assert not same_values(pa.array([1], pa.int64()), pa.array([1], pa.int32()))


def test_categories_may_be_numbered_otherwise() -> None:
    a = pa.DictionaryArray.from_arrays([0, 1, None], ["x", "y"])
    b = pa.DictionaryArray.from_arrays([1, 0, None], ["y", "x"])
    assert same_values(a, b)
    assert not same_values(a, pa.DictionaryArray.from_arrays([1, 0, None], ["x", "y"]))
