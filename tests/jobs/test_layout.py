"""Names: they sort as shards do, tell their attempt, and what is not committed is hidden from readers."""

from pathlib import Path

from jobs.storage.layout import Layout, attempt_of
from schemas.plan import ShardPlan

LAYOUT = Layout(Path("/out"))


def test_parts_keep_their_hive_directory() -> None:
    shard = ShardPlan(shard_index=3, first_row=0, num_rows=1, partition="day=01/lang=en")
    assert LAYOUT.part_path(shard) == Path("/out/day=01/lang=en/part-00003.parquet")
    assert LAYOUT.part_path(shard.model_copy(update={"partition": ""})) == Path("/out/part-00003.parquet")


def test_each_generation_of_a_shard_has_its_own_receipt() -> None:
    assert LAYOUT.receipt_path(3).name == "00003.0.json"
    assert LAYOUT.receipt_path(3, generation=2).name == "00003.2.json"


def test_staged_parts_and_temporary_receipts_tell_their_attempt() -> None:
    assert attempt_of(LAYOUT.staged_path(3, 12, "ab12")) == 12
    assert attempt_of(LAYOUT.temp_receipt_path(3, 12, "ab12")) == 12


def test_what_is_not_committed_is_hidden() -> None:
    paths = (LAYOUT.staged_path(0, 1, "a"), LAYOUT.temp_receipt_path(0, 1, "a"), LAYOUT.wip_path(0, 1, "a"))
    for path in (*paths, LAYOUT.manifest_path, LAYOUT.success_path, LAYOUT.plan_path):
        assert any(part[0] in "._" for part in path.relative_to("/out").parts), path
