"""Reading: a shard's rows and no others, cells that cannot be used become row errors, files are those planned."""

import errno
import re
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileOpener
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.input.footers import TAIL_BYTES
from jobs.plan.tiling import plan_shards
from schemas.errors import InvalidJob, ShardFailed, ShardRetryable
from schemas.generation import InputRow
from schemas.plan import Plan
from tests.storage import plan_of, prompts, spec_of, write_parquet
from workers.reader import ShardRows, read_shard

BAD_UTF8 = b"ok \xff\xfe"


def plan_for(source: Path | str, **options: Any) -> Plan:
    return plan_of(spec_of(source, "/nowhere/out", **options))


def rows_of(path: Path, columns: dict[str, Any], **options: Any) -> list[InputRow]:
    plan = plan_for(write_parquet(path, columns), **options)
    return [row for shard in plan.shards for row in read_shard(plan, shard).rows]


def text_of_bytes(values: list[bytes | None], kind: pa.DataType | None = None) -> pa.Array:
    """Text cells with any bytes, as Arrow reads them from a file that holds them."""
    binary = pa.array(values, pa.binary())
    return binary.view(pa.string()).cast(kind or pa.string())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(1, 40), st.integers(1, 13))
def test_shards_read_every_row_once_whatever_files_and_row_groups(
    tmp_path: Path, sizes: list[int], shard_rows: int, group_rows: int
) -> None:
    for path in tmp_path.glob("in/*"):
        path.unlink()
    for number, size in enumerate(sizes):
        columns = {"prompt": pa.array([f"{number}-{row}" for row in range(size)], pa.string())}
        write_parquet(tmp_path / "in" / f"{number}.parquet", columns, row_group_size=group_rows)
    plan = plan_for(tmp_path / "in", shard_rows=shard_rows)
    rows = [row for shard in plan.shards for row in read_shard(plan, shard).rows]
    expected = [f"{number}-{row}" for number, size in enumerate(sizes) for row in range(size)]
    assert [row.prompt for row in rows] == expected
    assert [row.row_index for row in rows] == list(range(sum(sizes)))


def test_only_the_row_groups_of_the_shard_are_read(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "in.parquet", prompts(30), row_group_size=10, compression="none")
    data = bytearray(path.read_bytes())
    for row in (5, 25):  # damage the first and the last row group; the footer, and so the fingerprint, stays
        place = data.find(f"prompt {row}".encode())
        data[place] ^= 0xFF
    plan = plan_for(path, shard_rows=10)
    path.write_bytes(bytes(data))
    assert [row.prompt for row in read_shard(plan, plan.shards[1]).rows] == [f"prompt {n}" for n in range(10, 20)]
    assert read_shard(plan, plan.shards[0]).rows[5].error is not None


def test_a_large_row_group_is_never_held_whole(tmp_path: Path) -> None:
    num_rows, num_bytes = 40_000, 500
    columns = {"prompt": [f"{row:0{num_bytes}d}" for row in range(num_rows)]}
    path = write_parquet(tmp_path / "in.parquet", columns, row_group_size=num_rows, use_dictionary=False)
    plan = plan_for(path, shard_rows=50)
    usual, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        rows = read_shard(plan, plan.shards[-1]).rows
    finally:
        pa.set_memory_pool(usual)
    assert [row.prompt for row in rows] == columns["prompt"][-50:]
    assert 0 < pool.max_memory() < num_rows * num_bytes / 3


def test_columns_are_carried_unchanged(tmp_path: Path) -> None:
    table = pa.table(
        {
            "prompt": pa.array(["a", None], pa.large_string()),
            "bad": text_of_bytes([BAD_UTF8, None]),
            "when": pa.array([1, None], pa.timestamp("us", "UTC")),
            "kind": pa.array(["x", "y"]).dictionary_encode(),
            "nested": [[{"a": 1}], None],
        },
        metadata={"pandas": "{}"},
    )
    pq.write_table(table, tmp_path / "in.parquet")
    plan = plan_for(tmp_path / "in.parquet")
    carried = read_shard(plan, plan.shards[0]).table
    assert carried.schema.equals(table.schema)
    assert carried.schema.metadata[b"pandas"] == b"{}"
    assert carried.drop(["bad"]).equals(table.drop(["bad"]))
    assert carried["bad"].cast(pa.binary()).to_pylist() == [BAD_UTF8, None]


def test_hive_keys_stay_in_the_directory_names(tmp_path: Path) -> None:
    write_parquet(tmp_path / "day=01" / "x.parquet", prompts(1))
    plan = plan_for(tmp_path)
    assert read_shard(plan, plan.shards[0]).table.schema.names == ["prompt"]


def test_files_of_other_text_and_null_types_are_read_as_one_schema(tmp_path: Path) -> None:
    message = pa.struct([("role", pa.string()), ("content", pa.large_string())])
    write_parquet(
        tmp_path / "a.parquet", {"messages": pa.nulls(1), "tag": text_of_bytes([BAD_UTF8], pa.large_string())}
    )
    write_parquet(
        tmp_path / "b.parquet",
        {"tag": ["t"], "messages": pa.array([[{"role": "user", "content": "hi"}]], pa.large_list(message))},
    )
    plan = plan_for(tmp_path)
    rows = read_shard(plan, plan.shards[0])
    assert [row.messages for row in rows.rows] == [None, [{"role": "user", "content": "hi"}]]
    assert rows.table["tag"].cast(pa.large_binary()).to_pylist() == [BAD_UTF8, b"t"]


def test_prompts_that_cannot_be_used_are_errors_of_their_rows_alone(tmp_path: Path) -> None:
    cells = [b"hello", None, b"", b" \n\t", BAD_UTF8, b" fine "]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        rows = rows_of(tmp_path / "in.parquet", {"prompt": text_of_bytes(cells, kind)})
        kinds = [row.error and row.error[0] for row in rows]
        assert kinds == [None, "null_prompt", "empty_prompt", "empty_prompt", "bad_utf8", None]
        assert [row.prompt for row in rows] == ["hello", None, None, None, None, " fine "]


def test_prompts_may_be_categories_or_json_or_null_throughout(tmp_path: Path) -> None:
    categories = pa.array(["a", None, "a"]).dictionary_encode()
    assert [row.prompt for row in rows_of(tmp_path / "a.parquet", {"prompt": categories})] == ["a", None, "a"]
    json_texts = pa.array(["[1]", None], pa.json_())
    rows = rows_of(tmp_path / "c.parquet", {"prompt": json_texts, "params": json_texts})
    assert [(row.prompt, row.params) for row in rows] == [("[1]", "[1]"), (None, None)]
    rows = rows_of(tmp_path / "b.parquet", {"prompt": pa.nulls(2)})
    assert [row.error and row.error[0] for row in rows] == ["null_prompt"] * 2


def test_messages_lose_the_keys_that_arrow_added(tmp_path: Path) -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": None}}
    cells = [
        [{"role": "user", "content": "hi", "tool_calls": None}],
        [{"role": "assistant", "content": "", "tool_calls": [call, None]}],
    ]
    rows = rows_of(tmp_path / "in.parquet", {"messages": cells})
    assert rows[0].messages == [{"role": "user", "content": "hi"}]
    assert rows[1].messages == [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f"}}, None]}
    ]


def test_messages_that_cannot_be_used_are_errors_of_their_rows_alone(tmp_path: Path) -> None:
    cells = [
        None,
        [],
        [None],
        [{"role": "user", "content": "x"}, {"role": None, "content": "x"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": "fine"}],
    ]
    rows = rows_of(tmp_path / "in.parquet", {"messages": cells})
    assert [row.error for row in rows] == [
        ("null_messages", "the messages are null"),
        ("empty_messages", "the list of messages is empty"),
        ("bad_messages", "message 0 has no role"),
        ("bad_messages", "message 1 has no role"),
        ("bad_messages", "message 0 has no content"),
        None,
    ]
    assert [row.messages for row in rows[:5]] == [None] * 5


def test_a_message_with_bad_utf8_is_an_error_of_its_row_alone(tmp_path: Path) -> None:
    structs = pa.StructArray.from_arrays(
        [pa.array(["user"] * 2), text_of_bytes([BAD_UTF8, b"ok"])], ["role", "content"]
    )
    rows = rows_of(tmp_path / "in.parquet", {"messages": pa.ListArray.from_arrays([0, 1, 2], structs)})
    assert [row.error and row.error[0] for row in rows] == ["bad_utf8", None]


def test_times_that_python_cannot_hold_are_errors_of_their_rows_alone(tmp_path: Path) -> None:
    for kind, bad in ((pa.timestamp("ns"), 1), (pa.timestamp("s"), 2**45), (pa.duration("ns"), 1)):
        times = pa.array([bad, 0], pa.int64()).view(kind)
        structs = pa.StructArray.from_arrays(
            [pa.array(["user"] * 2), pa.array(["hi"] * 2), times], ["role", "content", "at"]
        )
        rows = rows_of(tmp_path / "a.parquet", {"messages": pa.ListArray.from_arrays([0, 1, 2], structs)})
        assert [row.error and row.error[0] for row in rows] == ["bad_messages", None]
        params = pa.StructArray.from_arrays([times], ["seed"])
        rows = rows_of(tmp_path / "b.parquet", {**prompts(2), "params": params})
        assert [row.error and row.error[0] for row in rows] == ["bad_params", None]


def test_params_are_handed_on_as_text_or_mapping(tmp_path: Path) -> None:
    texts = text_of_bytes([b'{"seed": 1}', None, BAD_UTF8])
    rows = rows_of(tmp_path / "a.parquet", {**prompts(3), "params": texts})
    assert [row.params for row in rows] == ['{"seed": 1}', None, None]
    assert [row.error and row.error[0] for row in rows] == [None, None, "bad_utf8"]
    structs = [{"seed": 1, "top_k": None}, None, {"seed": None, "top_k": 3}]
    rows = rows_of(tmp_path / "b.parquet", {**prompts(3), "params": structs})
    assert [row.params for row in rows] == [{"seed": 1}, None, {"top_k": 3}]


def test_an_empty_shard_has_every_column(tmp_path: Path) -> None:
    columns = {"prompt": pa.array([], pa.string()), "n": pa.array([], pa.int8())}
    plan = plan_for(write_parquet(tmp_path / "in.parquet", columns))
    assert read_shard(plan, plan.shards[0]) == ShardRows(pa.table(columns), [])


def test_a_url_is_read_like_a_file() -> None:
    file_system = fsspec.filesystem("memory")
    with file_system.open("/reader/in.parquet", "wb") as file:
        pq.write_table(pa.table(prompts(5)), file, row_group_size=2)
    plan = plan_for("memory://reader/in.parquet", shard_rows=3)
    assert [row.prompt for row in read_shard(plan, plan.shards[1]).rows] == ["prompt 3", "prompt 4"]


def test_a_file_that_changed_or_went_since_planning_is_named(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "in.parquet", prompts(5))
    plan = plan_for(path)
    write_parquet(path, prompts(5, first=1))
    with pytest.raises(InvalidJob, match=r"input file .*/in\.parquet has changed since the job was planned"):
        read_shard(plan, plan.shards[0])
    path.unlink()
    with pytest.raises(InvalidJob, match=r"input file .*/in\.parquet is gone since the job was planned"):
        read_shard(plan, plan.shards[0])


class TestDamage:
    """What a file holds damaged costs its own rows: those of the page and those behind it in its row group."""

    def columns(self, num_rows: int) -> dict[str, Any]:
        carried = [f"carried {row:04d}" for row in range(num_rows)]
        return {"prompt": [f"prompt {row:04d}" for row in range(num_rows)], "carried": carried}

    def plan(self, directory: Path, num_rows: int, damaged: str, **options: Any) -> Plan:
        """A plan of a file in which one text has changed under its page's checksum since."""
        columns = pa.table(self.columns(num_rows), schema=options.pop("schema", None))
        path = directory / "in.parquet"
        plain = {"compression": "none", "write_page_checksum": True, "use_dictionary": False}
        pq.write_table(columns, path, **plain, data_page_size=1, write_batch_size=10, **options)
        plan = plan_for(path, shard_rows=num_rows)
        data = path.read_bytes()
        place = data.index(damaged.encode())
        path.write_bytes(data[:place] + b"X" + data[place + 1 :])
        return plan

    def test_rows_before_the_page_and_in_other_row_groups_are_whole(self, tmp_path: Path) -> None:
        plan = self.plan(tmp_path, 90, "prompt 0047", row_group_size=30)
        found = read_shard(plan, plan.shards[0])
        expected = self.columns(90)
        lost = range(40, 60)
        assert [row.row_index for row in found.rows if row.error is not None] == list(lost)
        for row in found.rows:
            assert row.prompt == (None if row.row_index in lost else expected["prompt"][row.row_index])
        assert found.table["carried"].to_pylist() == expected["carried"]
        kind, message = found.rows[40].error or ("", "")
        assert kind == "unreadable_row"
        assert re.fullmatch(r"column 'prompt' of row group 1 of /.*/in\.parquet cannot be read: .*CRC.*", message)

    def test_a_carried_value_that_is_lost_is_an_error_of_its_row_too(self, tmp_path: Path) -> None:
        plan = self.plan(tmp_path, 3000, "carried 1234")
        found = read_shard(plan, plan.shards[0])
        assert [row.row_index for row in found.rows if row.error is not None] == list(range(1230, 3000))
        expected = self.columns(3000)
        assert found.table["carried"].to_pylist() == [*expected["carried"][:1230], *[None] * 1770]
        assert found.table["prompt"].to_pylist() == expected["prompt"]

    def test_every_shard_reads_its_own_rows_of_a_damaged_group(self, tmp_path: Path) -> None:
        plan = self.plan(tmp_path, 100, "prompt 0047")
        pieces = plan_shards(plan.files, 7)
        found = [row for shard in pieces for row in read_shard(plan, shard).rows]
        assert [row.row_index for row in found] == list(range(100))
        assert [row.row_index for row in found if row.error is None] == list(range(40))

    def test_columns_whose_names_look_like_paths_are_told_apart(self, tmp_path: Path) -> None:
        rows = range(20)
        columns = {"prompt": [f"prompt {r:04d}" for r in rows], "a": [{"b": r} for r in rows], "a.b": list(rows)}
        path = write_parquet(tmp_path / "in.parquet", columns, compression="none", use_dictionary=False)
        plan = plan_for(path)
        chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
        data = path.read_bytes()
        path.write_bytes(data[: chunk.data_page_offset] + bytes(30) + data[chunk.data_page_offset + 30 :])
        found = read_shard(plan, plan.shards[0])
        assert {row.error and row.error[0] for row in found.rows} == {"unreadable_row"}
        assert found.table.to_pydict() == {**columns, "prompt": [None] * 20}

    def test_a_column_without_nulls_fails_the_shard_and_says_where(self, tmp_path: Path) -> None:
        schema = pa.schema([("prompt", pa.string()), pa.field("carried", pa.string(), nullable=False)])
        plan = self.plan(tmp_path, 30, "carried 0021", schema=schema, row_group_size=10)
        where = r"column 'carried' of row group 2 of /.*/in\.parquet cannot be read: .*; the column has no nulls"
        with pytest.raises(ShardFailed, match=where):
            read_shard(plan, plan.shards[0])
        before, last = plan_shards(plan.files, 20)
        assert [row.error for row in read_shard(plan, before).rows] == [None] * 20
        with pytest.raises(ShardFailed):
            read_shard(plan, last)

    def test_a_struct_whose_members_have_no_nulls_has_none_either(self, tmp_path: Path) -> None:
        schema = pa.schema(
            [("prompt", pa.string()), ("carried", pa.struct([pa.field("text", pa.string(), nullable=False)]))]
        )
        columns = {"prompt": ["a", "b"], "carried": [{"text": "one text"}, {"text": "two text"}]}
        path = tmp_path / "in.parquet"
        pq.write_table(pa.table(columns, schema=schema), path, compression="none", write_page_checksum=True)
        plan = plan_for(path)
        path.write_bytes(path.read_bytes().replace(b"one text", b"1ne text", 1))
        with pytest.raises(ShardFailed, match=r"column 'carried' of row group 0"):
            read_shard(plan, plan.shards[0])

    def test_a_disk_that_fails_is_no_damage(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write_parquet(tmp_path / "in.parquet", self.columns(9000), compression="none", use_dictionary=False)
        plan = plan_for(path)
        assert plan.files[0].size_bytes > 4 * TAIL_BYTES
        read = LocalFileOpener.read

        def failing(self: LocalFileOpener, *arguments: Any) -> bytes:
            if self.tell() < TAIL_BYTES:
                raise OSError(errno.EIO, "Input/output error")
            return bytes(read(self, *arguments))

        monkeypatch.setattr(LocalFileOpener, "read", failing)
        with pytest.raises(ShardRetryable, match=r"cannot read .*/in\.parquet: .*Input/output error"):
            read_shard(plan, plan.shards[0])
