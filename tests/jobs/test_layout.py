"""Names: they sort as shards do, tell their attempt, and what is not committed is hidden from readers."""

from pathlib import Path

from jobs.storage.durable import temp_path
from jobs.storage.layout import Layout, attempt_in, generation_in
from schemas.plan import ShardPlan

LAYOUT = Layout(Path("/out"))


def test_parts_keep_their_hive_directory() -> None:
    shard = ShardPlan(shard_index=3, first_row=0, num_rows=1, partition="day=01/lang=en")
    assert LAYOUT.part_path(shard) == Path("/out/day=01/lang=en/part-00003.parquet")
    assert LAYOUT.part_path(shard.model_copy(update={"partition": ""})) == Path("/out/part-00003.parquet")


def test_each_generation_of_a_shard_has_its_own_receipt() -> None:
    assert LAYOUT.receipt_path(3).name == "00003.0.json"
    assert LAYOUT.receipt_path(3, generation=2).name == "00003.2.json"


def test_staged_parts_and_temporary_receipts_tell_their_shard_and_attempt() -> None:
    staged = LAYOUT.staged_path(3, 12, "ab12")
    for path in (staged, temp_path(staged), LAYOUT.temp_receipt_path(3, 12, "ab12")):
        assert attempt_in(path.name) == (3, 12)
    for name in (LAYOUT.receipt_path(3).name, "00003", "x.parquet"):
        assert attempt_in(name) is None


def test_saved_rows_of_each_generation_have_a_directory_that_tells_it() -> None:
    assert LAYOUT.wip_dir(3).name == "00003"
    assert [generation_in(LAYOUT.wip_dir(3, generation).name) for generation in (0, 2)] == [(3, 0), (3, 2)]
    assert generation_in("00003.x") is None


def test_what_is_not_committed_is_hidden() -> None:
    paths = (LAYOUT.staged_path(0, 1, "a"), LAYOUT.temp_receipt_path(0, 1, "a"), LAYOUT.wip_path(0, 1, "a"))
    for path in (*paths, LAYOUT.manifest_path, LAYOUT.success_path, LAYOUT.plan_path):
        assert any(part[0] in "._" for part in path.relative_to("/out").parts), path
