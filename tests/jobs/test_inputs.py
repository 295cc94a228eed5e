"""Inputs: which files are read and in which order, where schemas agree, and one line for everything that is wrong."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.input.inputs import InputTable, discover
from jobs.input.paths import resolve_paths
from schemas.errors import InvalidJob
from tests.storage import prompts, spec_of, write_parquet

MESSAGES = [[{"role": "user", "content": "hi"}]]


def found(source: Path | str, output: Path | str = "/nowhere/out", **options: Any) -> InputTable:
    return discover(spec_of(source, output, **options))


def refused(source: Path | str, message: str, output: Path | str = "/nowhere/out", **options: Any) -> None:
    with pytest.raises(InvalidJob, match=message) as refusal:
        found(source, output, **options)
    assert "\n" not in str(refusal.value)


# Files


def test_outputs_of_jobs_inside_the_input_are_not_read_but_one_that_is_named_is(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in" / "a.parquet", prompts(3))
    write_parquet(tmp_path / "in" / "out" / "part-00000.parquet", pa.table({"other": [1]}))
    (tmp_path / "in" / "out" / "_jobctl").mkdir()
    assert [Path(file.path).name for file in found(tmp_path / "in").files] == ["a.parquet"]
    refused(tmp_path / "in" / "out", "no prompt column|'other'|other")


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in" / "a.parquet", prompts(3))
    os.rename(tmp_path / "in" / "a.parquet", os.fsencode(tmp_path / "in") + b"/caf\xe9.parquet")
    refused(tmp_path / "in", "not UTF-8; rename it")


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    spec = resolve_paths(spec_of("~/in.parquet", "~/out"))
    assert (spec.input, spec.output) == (str(tmp_path / "in.parquet"), str(tmp_path / "out"))


def test_a_file_is_fingerprinted_by_its_size_and_footer(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "in.parquet", prompts(3))
    (file,) = found(path).files
    data = path.read_bytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    assert (file.size_bytes, file.footer_sha256) == (len(data), hashlib.sha256(footer).hexdigest())
    assert (file.path, file.first_row, file.num_rows, file.partition) == (str(path), 0, 3, "")


def test_a_footer_longer_than_the_first_read_is_read_whole(tmp_path: Path) -> None:
    columns = {**prompts(2), **{f"a_column_with_a_long_name_{n}": [n, n] for n in range(1500)}}
    path = write_parquet(tmp_path / "in.parquet", columns)
    table = found(path)
    assert len(table.schema.names) == 1501
    assert table.files[0].size_bytes > 2 * 64 * 1024


def test_a_directory_is_read_in_the_order_of_names_without_hidden_and_other_files(tmp_path: Path) -> None:
    for name in ("b/1.parquet", "a.parquet", "_tmp/x.parquet", ".x.parquet", "_x.parquet", "b/0.PARQUET"):
        write_parquet(tmp_path / name, prompts(2))
    (tmp_path / "README.md").write_text("not data")
    table = found(tmp_path)
    assert relative(table, tmp_path) == ["a.parquet", "b/0.PARQUET", "b/1.parquet"]
    assert [file.first_row for file in table.files] == [0, 2, 4]
    assert table.num_rows == 6


def test_hive_directories_are_kept_as_they_are_spelled(tmp_path: Path) -> None:
    for day in ("01", "02"):
        write_parquet(tmp_path / f"day={day}" / "lang=pt%20br" / "x.parquet", prompts(1))
    table = found(tmp_path)
    assert [file.partition for file in table.files] == ["day=01/lang=pt%20br", "day=02/lang=pt%20br"]
    assert table.schema.names == ["prompt"]


def test_a_directory_above_the_input_is_no_hive_directory(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "lr=1" / "x.parquet", prompts(1))
    for source in (path, path.parent, path.parent / "*.parquet"):
        assert [file.partition for file in found(source).files] == [""]


def test_links_to_files_and_directories_are_followed(tmp_path: Path) -> None:
    blob = write_parquet(tmp_path / "blobs" / "0123", prompts(2))
    write_parquet(tmp_path / "far" / "x.parquet", prompts(3))
    (tmp_path / "in" / "day=00").mkdir(parents=True)
    os.symlink(blob, tmp_path / "in" / "day=00" / "a.parquet")
    os.symlink(tmp_path / "far", tmp_path / "in" / "day=01")
    table = found(tmp_path / "in")
    assert [(file.num_rows, file.partition) for file in table.files] == [(2, "day=00"), (3, "day=01")]
    assert found(tmp_path / "in" / "day=*").files == table.files


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        write_parquet(tmp_path / "in" / name / "x.parquet", prompts(1))
        os.symlink(tmp_path / "in" / other, tmp_path / "in" / name / "link")
    refused(tmp_path / "in", "link is a link to a directory that it is in")


def test_a_glob_may_match_files_and_directories(tmp_path: Path) -> None:
    for name in ("day=01/x.parquet", "day=02/x.parquet", "day=02/_x.parquet", "other/x.parquet"):
        write_parquet(tmp_path / name, prompts(1))
    for pattern in ("day=*", "day=*/*.parquet", "day=*/**"):
        table = found(tmp_path / pattern)
        assert relative(table, tmp_path) == ["day=01/x.parquet", "day=02/x.parquet"]
        assert [file.partition for file in table.files] == ["day=01", "day=02"]


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "data[1].parquet", prompts(1))
    assert [file.path for file in found(path).files] == [str(path)]


def test_a_file_that_is_named_may_have_any_name(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "_part", prompts(1))
    assert found(path).num_rows == 1


def test_relative_and_file_urls_name_the_same_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "in.parquet", prompts(1))
    monkeypatch.chdir(tmp_path)
    assert found("in.parquet") == found(path)
    assert found(f"file://{path}").files == found(path).files


@pytest.fixture
def memory() -> Iterator[Any]:
    file_system = fsspec.filesystem("memory")
    yield file_system
    file_system.rm("/", recursive=True)


def test_a_url_is_read_and_kept_as_a_url(memory: Any) -> None:
    for day in ("01", "02"):
        with memory.open(f"/bucket/day={day}/x.parquet", "wb") as file:
            pq.write_table(pa.table(prompts(2)), file)
    for source in ("memory://bucket", "memory://bucket/*/x.parquet"):
        table = found(source)
        assert [file.path for file in table.files] == [f"memory:///bucket/day={day}/x.parquet" for day in ("01", "02")]
        assert [file.partition for file in table.files] == ["day=01", "day=02"]


def test_the_output_inside_the_input_is_not_read(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in.parquet", prompts(2))
    write_parquet(tmp_path / "out" / "part-00000.parquet", {**prompts(2), "status": ["ok", "ok"]})
    os.symlink(tmp_path, tmp_path.parent / f"{tmp_path.name}-link")
    for source in (tmp_path, tmp_path.parent / f"{tmp_path.name}-link", tmp_path / "**"):
        assert found(source, tmp_path / "out").num_rows == 2


def test_the_output_must_be_another_local_directory_than_the_input(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in.parquet", prompts(2))
    refused(tmp_path, "is the input itself; choose another --output", output=tmp_path / "x" / "..")
    refused(tmp_path, "--output s3://b/out is a URL; this version writes to local file systems", output="s3://b/out")


def test_what_is_not_there_or_not_parquet_is_refused(tmp_path: Path) -> None:
    good = write_parquet(tmp_path / "good.parquet", prompts(2)).read_bytes()
    for name, data in {"empty": b"", "text": b"prompt\nhello\n", "torn": good[:-20], "tiny": b"PAR1"}.items():
        (tmp_path / f"{name}.parquet").write_bytes(data)
    (tmp_path / "bad.parquet").write_bytes(good[:-60] + bytes(52) + good[-8:])
    (tmp_path / "long.parquet").write_bytes(good[:-8] + b"\xff\xff\xff\x7fPAR1")
    (tmp_path / "dir").mkdir()
    refused(tmp_path / "none.parquet", "no such file or directory: .*/none.parquet")
    refused(tmp_path / "empty.parquet", r"empty.parquet is empty \(0 bytes\)")
    refused(tmp_path / "text.parquet", r"text.parquet is not a Parquet file$")
    refused(tmp_path / "torn.parquet", "torn.parquet is not a whole Parquet file: its footer is missing")
    refused(tmp_path / "tiny.parquet", "tiny.parquet is not a whole Parquet file")
    refused(tmp_path / "bad.parquet", "bad.parquet has a footer that cannot be read")
    refused(tmp_path / "long.parquet", "long.parquet is not a whole Parquet file: its footer is damaged")
    refused(tmp_path / "dir", r"no Parquet file \(\*.parquet\) in the directory .*/dir")
    refused(tmp_path / "dir/*.parquet", r"no Parquet file matches .*/dir/\*.parquet")
    refused("nosuch://x/y", "cannot read the input nosuch://x/y: Protocol not known")
    refused("a::memory://x", "chained URLs are not supported")
    refused("https://me:secret@h/x.parquet", "the input's URL has a password, which would be kept in the plan")


def test_a_foreign_error_of_an_object_store_becomes_one_line(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_credentials(path: str) -> bool:
        raise RuntimeError("no credentials\nfound")

    monkeypatch.setattr(type(memory), "isfile", lambda self, path: no_credentials(path))
    refused("memory://bucket/x", "cannot read the input memory://bucket/x: no credentials found")


# Schemas


def test_text_and_list_types_that_parquet_does_not_tell_apart_agree(tmp_path: Path) -> None:
    small, large = pa.list_(pa.string()), pa.large_list(pa.large_string())
    write_parquet(tmp_path / "a.parquet", {"prompt": pa.array(["x"], pa.large_string()), "l": pa.array([["x"]], large)})
    write_parquet(tmp_path / "b.parquet", {"l": pa.array([["x"]], small), "prompt": pa.array(["x"], pa.string())})
    schema = found(tmp_path).schema
    assert (schema.field("prompt").type, schema.field("l").type) == (pa.large_string(), large)


def test_a_column_that_is_null_throughout_a_file_takes_the_type_of_the_others(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", {"prompt": pa.nulls(2), "tags": [[], []], "m": [{"x": None}, None]})
    write_parquet(tmp_path / "b.parquet", {"prompt": ["x"], "tags": [["t"]], "m": [{"x": 1}]})
    write_parquet(tmp_path / "c.parquet", {"prompt": ["x"], "tags": pa.nulls(1), "m": pa.nulls(1)})
    schema = found(tmp_path).schema
    assert schema.types == [pa.string(), pa.list_(pa.string()), pa.struct([("x", pa.int64())])]


def test_not_null_and_categories_widen(tmp_path: Path) -> None:
    few = pa.array(["x"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))
    required = pa.schema([pa.field("prompt", pa.string(), nullable=False), ("c", few.type)], metadata={"k": "v"})
    pq.write_table(pa.table([["x"], few], schema=required), tmp_path / "a.parquet")
    write_parquet(tmp_path / "b.parquet", {"prompt": [None], "c": pa.array(["y"]).dictionary_encode()})
    schema = found(tmp_path).schema
    assert schema.field("prompt").nullable
    assert schema.field("c").type == pa.dictionary(pa.int32(), pa.string())
    assert schema.metadata == {b"k": b"v"}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"id": ["7"]}, "column 'id' is int64 in .*/a.parquet and string in .*/b.parquet; files must agree"),
        ({}, "b.parquet has no column 'id', which .*/a.parquet has; files must agree"),
        ({"id": [1], "x": [1]}, "b.parquet has the column 'x', which .*/a.parquet has not; files must agree"),
    ],
)
def test_files_that_disagree_are_refused_naming_file_and_column(
    tmp_path: Path, other: dict[str, Any], message: str
) -> None:
    write_parquet(tmp_path / "a.parquet", {"prompt": ["x"], "id": [1]})
    write_parquet(tmp_path / "b.parquet", {"prompt": ["y"], **other})
    refused(tmp_path, message)


def test_messages_with_other_keys_in_another_file_are_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", {"messages": MESSAGES})
    write_parquet(tmp_path / "b.parquet", {"messages": [[{"role": "user", "content": "x", "name": "y"}]]})
    refused(tmp_path, "column 'messages' is list<.* in .*/a.parquet and list<.*name.* in .*/b.parquet")


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table([["x"], [1], [2]], names=["prompt", "a", "a"]), path)
    refused(path, "in.parquet has several columns named 'a'")
    other = write_parquet(tmp_path / "dir" / "a.parquet", {"prompt": ["x"], "a": [1]})
    os.rename(path, other.with_name("b.parquet"))
    refused(other.parent, "b.parquet has several columns named 'a'")


def test_files_below_different_hive_keys_are_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "day=01" / "x.parquet", prompts(1))
    write_parquet(tmp_path / "x.parquet", prompts(1))
    refused(tmp_path, r"different Hive keys \(day=01, none\); files must agree")


# Columns


def test_prompts_are_found_by_name_and_type(tmp_path: Path) -> None:
    def kind(columns: dict[str, Any], **options: Any) -> tuple[str, str]:
        detected = found(write_parquet(tmp_path / "in.parquet", columns), **options).columns
        return detected.prompt_kind, detected.prompt_column

    categories = pa.array(["x"]).dictionary_encode()
    large = pa.array(MESSAGES, pa.large_list(pa.struct([("role", pa.string()), ("content", pa.string())])))
    assert kind({"prompt": ["x"]}) == ("prompt", "prompt")
    assert kind({"prompt": categories}) == ("prompt", "prompt")
    assert kind({"prompt": pa.nulls(1)}) == ("prompt", "prompt")
    assert kind({"messages": MESSAGES}) == ("messages", "messages")
    assert kind({"messages": large}) == ("messages", "messages")
    assert kind({"messages": [[]]}) == ("messages", "messages")
    assert kind({"prompt": [1], "messages": MESSAGES}) == ("messages", "messages")
    assert kind({"prompt": ["x"], "messages": ["chat"]}) == ("prompt", "prompt")
    assert kind({"prompt": ["x"], "messages": MESSAGES}, messages_column="messages") == ("messages", "messages")
    assert kind({"prompt": ["x"], "q": ["y"]}, prompt_column="q") == ("prompt", "q")
    assert kind({"chat": MESSAGES}, messages_column="chat", system_prompt="be brief") == ("messages", "chat")


def test_id_and_params_are_optional(tmp_path: Path) -> None:
    bare = write_parquet(tmp_path / "a.parquet", prompts(1))
    full = write_parquet(
        tmp_path / "b.parquet", {**prompts(1), "id": ["a"], "params": ['{"seed": 1}'], "x": [{"a": 1}]}
    )
    columns = found(bare).columns
    assert (columns.id_column, columns.params_column) == (None, None)
    columns = found(full).columns
    assert (columns.id_column, columns.params_column) == ("id", "params")
    columns = found(full, id_column="x", params_column="x").columns
    assert (columns.id_column, columns.params_column) == ("x", "x")


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"text": ["x"], "n": [1]}, {}, "no column 'prompt' or 'messages'; its columns are text, n; name one with"),
        ({f"c{n}": [n] for n in range(25)}, {}, "c18, c19 and 5 more; name one"),
        ({"prompt": ["x"], "messages": MESSAGES}, {}, "has both 'prompt' and 'messages'; say which with"),
        ({"prompt": [1]}, {}, "prompt column 'prompt' is int64, not string$"),
        ({"messages": ["x"]}, {}, "messages column 'messages' is string, not a list of .*--prompt-column messages"),
        ({"messages": [[{"role": "user"}]]}, {}, "messages column 'messages' is list<.*role.*not a list of"),
        (
            {"chat": MESSAGES},
            {"prompt_column": "chat"},
            "'chat' is list<.*not string; give it as --messages-column chat",
        ),
        ({"prompt": ["x"]}, {"prompt_column": "q"}, "--prompt-column q: the input has no such column; .* are prompt"),
        ({"prompt": ["x"]}, {"messages_column": "q"}, "--messages-column q: the input has no such column"),
        ({"prompt": ["x"]}, {"id_column": "q"}, "--id-column q: the input has no such column"),
        ({"prompt": ["x"]}, {"params_column": "q"}, "--params-column q: the input has no such column"),
        ({"prompt": ["x"], "params": [1]}, {}, "params column 'params' is int64, not a struct or JSON text"),
        ({"prompt": ["x"], "status": [1]}, {}, "already has the column 'status'.*--output-prefix"),
        ({"prompt": ["x"]}, {"system_prompt": "be brief"}, "--system-prompt needs chat messages"),
    ],
)
def test_columns_that_cannot_be_used_are_refused(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    refused(write_parquet(tmp_path / "in.parquet", columns), message, **options)


def test_an_output_prefix_is_the_way_out_of_a_clash(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "in.parquet", {**prompts(1), "status": [1]})
    assert found(path, output_prefix="gen_").num_rows == 1


def test_a_hive_key_that_clashes_with_the_output_is_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "seed=1" / "x.parquet", prompts(1))
    refused(tmp_path, "already has the column 'seed'")


def relative(table: InputTable, root: Path) -> list[str]:
    return [str(Path(file.path).relative_to(root)) for file in table.files]


@pytest.mark.parametrize(("found", "num_counts"), [("301 rows, but 300 in its row groups", 1), ("-300 rows", -1)])
def test_a_footer_that_counts_rows_that_cannot_be_is_refused(tmp_path: Path, found: str, num_counts: int) -> None:
    path = write_parquet(tmp_path / "in.parquet", prompts(300))
    # As Thrift's compact protocol has 300, 301 and -300; the file's own count comes before those of its row groups.
    other = b"\x16\xda\x04" if num_counts == 1 else b"\x16\xd7\x04"
    path.write_bytes(path.read_bytes().replace(b"\x16\xd8\x04", other, num_counts))
    with pytest.raises(InvalidJob, match=rf"in\.parquet has a footer that cannot be read: .*{found}"):
        discover(spec_of(path, tmp_path / "out"))
