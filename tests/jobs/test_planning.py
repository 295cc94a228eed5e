"""Plans: shards tile the rows once, a job's id follows from its request, and one job owns a directory."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.plan.output_dir import check_free, create_output
from jobs.plan.planning import check_input_unchanged, job_id_of, load_plan, save_plan
from jobs.plan.tiling import count_shards, plan_shards
from jobs.storage.layout import Layout
from schemas.errors import InvalidJob, NotFound
from schemas.job import JobSpec
from schemas.plan import InputFile, Plan
from tests.storage import plan_of, prompts, spec_of, write_parquet

FILES = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["", "day=01", "day=02"])), min_size=1, max_size=12)


def input_files(sizes: list[tuple[int, str]]) -> list[InputFile]:
    files: list[InputFile] = []
    first_row = 0
    for number, (num_rows, partition) in enumerate(sizes):
        files.append(
            InputFile(
                path=f"/{number}.parquet",
                partition=partition,
                first_row=first_row,
                num_rows=num_rows,
                size_bytes=1,
                footer_sha256="",
            )
        )
        first_row += num_rows
    return files


@given(FILES, st.integers(1, 50))
def test_shards_tile_the_rows_exactly_once_in_order(sizes: list[tuple[int, str]], shard_rows: int) -> None:
    shards = plan_shards(input_files(sizes), shard_rows)
    rows = [row for shard in shards for row in range(shard.first_row, shard.end_row)]
    assert rows == list(range(sum(num_rows for num_rows, _ in sizes)))
    assert [shard.shard_index for shard in shards] == list(range(len(shards)))
    assert count_shards(input_files(sizes), shard_rows) == len(shards)
    assert all(shard.num_rows <= shard_rows for shard in shards)
    assert all(shard.num_rows > 0 for shard in shards) or not rows


def test_shards_of_any_number_are_counted_at_once() -> None:
    assert count_shards(input_files([(2**60, "day=01"), (1, "day=02")]), 64) == 2**54 + 1


@given(FILES, st.integers(1, 50))
def test_a_shard_has_rows_of_its_own_hive_directory_only(sizes: list[tuple[int, str]], shard_rows: int) -> None:
    files = input_files(sizes)
    partition_of = {
        row: file.partition for file in files for row in range(file.first_row, file.first_row + file.num_rows)
    }
    for shard in plan_shards(files, shard_rows):
        assert {partition_of[row] for row in range(shard.first_row, shard.end_row)} <= {shard.partition}


def test_a_shard_takes_rows_of_several_files_of_a_directory() -> None:
    assert len(plan_shards(input_files([(2, "")] * 5), shard_rows=100)) == 1


def test_an_input_without_rows_has_one_empty_shard(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "in.parquet", {"prompt": [], "id": []})
    plan = plan_of(spec_of(source, tmp_path / "out"))
    assert [(shard.first_row, shard.num_rows) for shard in plan.shards] == [(0, 0)]
    assert [shard.partition for shard in plan_shards(input_files([(0, "day=01"), (0, "day=02")]), 5)] == ["day=01"]


def test_more_shards_than_names_sort_for_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.plan.planning.NUM_SHARDS_MAX", 3)
    source = write_parquet(tmp_path / "in.parquet", prompts(8))
    with pytest.raises(InvalidJob, match=r"8 rows make 4 shards.*--shard-rows above 2"):
        plan_of(spec_of(source, tmp_path / "out", shard_rows=2))


def test_the_same_request_is_the_same_job_and_any_change_is_another(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "in.parquet", prompts(3))
    spec = spec_of(source, tmp_path / "out")
    first = plan_of(spec)
    assert first.job_id == plan_of(spec).job_id
    assert first.job_id.startswith("job-") and len(first.job_id) == len("job-") + 12
    assert job_id_of(spec, first.files, nonce="x") != first.job_id
    assert plan_of(spec_of(source, tmp_path / "out", seed=1)).job_id != first.job_id
    write_parquet(tmp_path / "in.parquet", prompts(3, first=1))
    assert plan_of(spec).job_id != first.job_id


def test_a_saved_plan_is_read_back_equal(tmp_path: Path) -> None:
    plan, layout = saved_plan(tmp_path)
    assert load_plan(layout.output) == plan
    assert JobSpec.from_json(layout.spec_path.read_bytes()) == plan.spec


def test_submitting_again_resumes_the_saved_plan(tmp_path: Path) -> None:
    plan, layout = saved_plan(tmp_path)
    again = plan_of(plan.spec)
    assert again.created_at != plan.created_at
    assert save_plan(layout, again) == plan
    assert load_plan(layout.output) == plan


def test_the_spec_is_written_where_a_killed_submit_did_not_get_to_it(tmp_path: Path) -> None:
    plan, layout = saved_plan(tmp_path)
    layout.spec_path.unlink()
    save_plan(layout, plan)
    assert JobSpec.from_json(layout.spec_path.read_bytes()) == plan.spec


def test_a_submit_that_was_killed_early_does_not_hinder_the_next(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "in.parquet", prompts(5))
    layout = Layout(tmp_path / "out")
    layout.receipts_dir.mkdir(parents=True)
    (layout.control_dir / ".plan.json.0123.tmp").write_bytes(b"{")
    plan = plan_of(spec_of(source, layout.output))
    assert save_plan(layout, plan) == plan


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        ({"shard_rows": 2}, "--shard-rows is 64 there and 2 here"),
        ({"seed": 7, "batch_size": 2}, "--seed is 0 there and 7 here"),
        ({"output_prefix": "gen_"}, "--output-prefix is '' there and 'gen_' here"),
    ],
)
def test_another_jobs_output_is_refused_naming_the_option(
    tmp_path: Path, options: dict[str, Any], difference: str
) -> None:
    plan, layout = saved_plan(tmp_path)
    other = plan_of(spec_of(plan.spec.input, layout.output, **options))
    with pytest.raises(InvalidJob, match=f"holds {plan.job_id} already: {difference}; choose another --output"):
        save_plan(layout, other)


def test_a_new_job_of_the_same_request_needs_another_output(tmp_path: Path) -> None:
    plan, layout = saved_plan(tmp_path)
    with pytest.raises(InvalidJob, match=f"holds {plan.job_id} already: a new job was asked for"):
        save_plan(layout, plan_of(plan.spec, nonce="new"))


def test_a_changed_input_file_is_refused_by_name(tmp_path: Path) -> None:
    plan, layout = saved_plan(tmp_path)
    write_parquet(tmp_path / "in.parquet", prompts(6))
    changed = plan_of(plan.spec)
    with pytest.raises(InvalidJob, match=r"input file .*/in\.parquet has changed; choose another --output"):
        save_plan(layout, changed)
    with pytest.raises(InvalidJob, match=r"input file .*/in\.parquet has changed; restore it"):
        check_input_unchanged(plan, changed.files)


def test_input_files_that_came_or_went_are_refused_by_name(tmp_path: Path) -> None:
    for name in ("b", "c"):
        write_parquet(tmp_path / "in" / f"{name}.parquet", prompts(2))
    spec = spec_of(tmp_path / "in", tmp_path / "out")
    plan = plan_of(spec)
    check_input_unchanged(plan, plan.files)
    write_parquet(tmp_path / "in" / "a.parquet", prompts(2))
    with pytest.raises(InvalidJob, match=r"input file .*/a\.parquet is new"):
        check_input_unchanged(plan, plan_of(spec).files)
    (tmp_path / "in" / "b.parquet").unlink()
    with pytest.raises(InvalidJob, match=r"input file .*/b\.parquet is gone"):
        check_input_unchanged(plan, plan_of(spec).files)


def test_a_directory_with_something_else_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    plan = plan_of(spec_of(write_parquet(tmp_path / "in.parquet", prompts(2)), tmp_path / "out"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(InvalidJob, match=r"is not empty \(it has thesis.txt\).*choose another --output"):
        save_plan(Layout(tmp_path / "out"), plan)
    assert os.listdir(tmp_path / "out") == ["thesis.txt"]


def test_receipts_without_a_plan_are_not_taken_over(tmp_path: Path) -> None:
    plan, layout = saved_plan(tmp_path)
    layout.plan_path.unlink()
    with pytest.raises(InvalidJob, match=r"is not empty \(it has _jobctl/spec.json\)"):
        save_plan(layout, plan)


def test_an_output_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "in.parquet", prompts(2))
    (tmp_path / "file").write_text("")
    for output in (tmp_path / "file", tmp_path / "file" / "out", Path("/proc/out")):
        with pytest.raises(InvalidJob, match=f"--output {output}: .*; choose another --output"):
            save_plan(Layout(output), plan_of(spec_of(source, output)))


def test_a_refused_output_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_hard_links(source: Path, target: Path) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_hard_links)
    output = tmp_path / "a" / "out"
    plan = plan_of(spec_of(write_parquet(tmp_path / "in.parquet", prompts(2)), output))
    with pytest.raises(InvalidJob, match=r"Operation not permitted \(it must have hard links\)"):
        save_plan(Layout(output), plan)
    assert os.listdir(tmp_path) == ["in.parquet"]


def test_of_two_submitters_at_once_one_plan_is_saved_and_both_have_it(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "in.parquet", prompts(5))
    for turn in range(20):
        layout = Layout(tmp_path / f"out{turn}")
        plans = [plan_of(spec_of(source, layout.output)) for _ in range(2)]
        with ThreadPoolExecutor() as pool:
            saved = list(pool.map(save_plan, [layout] * 2, plans))
        assert saved == [load_plan(layout.output)] * 2


def test_a_plan_that_another_submitter_has_just_published_is_found(tmp_path: Path) -> None:
    plan, layout = saved_plan(tmp_path)
    check_free(layout)
    with pytest.raises(FileExistsError):
        create_output(layout, b"{}")
    assert load_plan(layout.output) == plan


def test_a_directory_without_a_job_is_not_found(tmp_path: Path) -> None:
    for output in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(NotFound, match="holds no job"):
            load_plan(output)


def test_a_damaged_plan_is_named(tmp_path: Path) -> None:
    _, layout = saved_plan(tmp_path)
    layout.plan_path.write_text("{")
    with pytest.raises(InvalidJob, match=r"plan\.json is damaged: Plan.*; restore it"):
        load_plan(layout.output)


def saved_plan(tmp_path: Path) -> tuple[Plan, Layout]:
    source = write_parquet(tmp_path / "in.parquet", prompts(5))
    layout = Layout(tmp_path / "out")
    return save_plan(layout, plan_of(spec_of(source, layout.output))), layout
