"""Parquet files of every kind of page, and ways to damage their bytes."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

NUM_ROWS, GROUP_ROWS = 60, 25
CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")
LENGTH_AND_MAGIC_BYTES = 8


def table(kind: str) -> pa.Table:
    """kind: the prompt column. Carried columns of many types, and params."""
    rows = range(NUM_ROWS)
    texts = [f"prompt {row}" for row in rows]
    messages = [[{"role": "user", "content": text}, {"role": "assistant", "content": "so"}] for text in texts]
    return pa.table(
        {
            kind: messages if kind == "messages" else texts,
            "params": [{"top_k": row, "seed": row} for row in rows],
            "score": [float(row) if row % 3 else None for row in rows],
            "kind": pa.array([f"k{row % 4}" for row in rows]).dictionary_encode(),
            "tags": pa.array([[("a", row)] for row in rows], pa.map_(pa.string(), pa.int64())),
            "code": pa.array([b"abcd"] * NUM_ROWS, pa.binary(4)),
            "price": pa.array(rows, pa.decimal128(10, 2)),
            "at": pa.array(rows, pa.timestamp("us", "UTC")),
            "flag": [bool(row % 2) for row in rows],
        }
    )


@cache
def whole_file(kind: str, codec: str, version: str, has_checksums: bool) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        table(kind),
        sink,
        compression=codec,
        row_group_size=GROUP_ROWS,
        data_page_version=version,
        data_page_size=200,
        write_batch_size=8,
        write_page_checksum=has_checksums,
    )
    return bytes(sink.getvalue().to_pybytes())


def footer_start(data: bytes) -> int:
    return len(data) - LENGTH_AND_MAGIC_BYTES - int.from_bytes(data[-8:-4], "little")


@dataclass(frozen=True)
class Damaged:
    """kind: of prompt. touched: the bytes that differ, or may."""

    kind: str
    whole: bytes
    data: bytes
    touched: tuple[range, ...]

    def intact_columns(self) -> Iterator[tuple[range, str]]:
        """(rows, column) of every column of a row group of which no byte is touched."""
        metadata = pq.ParquetFile(pa.BufferReader(self.whole)).metadata
        for group in range(metadata.num_row_groups):
            row_group, first_row = metadata.row_group(group), group * GROUP_ROWS
            chunks = [row_group.column(index) for index in range(row_group.num_columns)]
            touched = {chunk.path_in_schema.split(".")[0] for chunk in chunks if self._is_touched(chunk)}
            for name in table(self.kind).column_names:
                if name not in touched:
                    yield range(first_row, first_row + row_group.num_rows), name

    def _is_touched(self, chunk: Any) -> bool:
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        stop = start + chunk.total_compressed_size
        return any(one.start < stop and start < one.stop for one in self.touched)


def _flip(data: bytearray, place: int, source: random.Random) -> range:
    data[place] ^= 1 << source.randrange(8)
    return range(place, place + 1)


def _overwrite(data: bytearray, place: int, source: random.Random) -> range:
    data[place] = source.randrange(256)
    return range(place, place + 1)


def _zero(data: bytearray, place: int, source: random.Random) -> range:
    stop = min(len(data), place + source.randrange(1, 40))
    data[place:stop] = bytes(stop - place)
    return range(place, stop)


WAYS: tuple[Callable[[bytearray, int, random.Random], range], ...] = (_flip, _overwrite, _zero)


@st.composite
def damaged_files(draw: st.DrawFn, within: str) -> Damaged:
    """within: `data`, whose footer stays as it is; `footer`; or `all`, where the file may be cut short too."""
    source = random.Random(draw(st.integers(0, 2**64)))
    kind = source.choice(("prompt", "messages"))
    whole = whole_file(kind, source.choice(CODECS), source.choice(("1.0", "2.0")), source.random() < 0.5)
    data, end = bytearray(whole), footer_start(whole)
    first, last = {"data": (4, end), "footer": (end, len(whole)), "all": (0, len(whole))}[within]
    touched = [
        source.choice(WAYS)(data, source.randrange(first, last), source) for _ in range(source.choice((1, 1, 2, 5)))
    ]
    if within == "data":
        data[end:] = whole[end:]
    if within == "all" and source.random() < 0.3:
        del data[source.randrange(len(data)) :]
    return Damaged(kind, whole, bytes(data), tuple(touched))
