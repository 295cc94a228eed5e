"""Rows that end their worker, and batches that memory has no room for: found, recorded, and no other row lost."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from jobs.control.queue import Queue
from jobs.control.reconcile import reconcile_job
from jobs.control.status import read_status
from jobs.control.store import Store
from jobs.plan.planning import load_plan
from jobs.settings import Settings
from jobs.storage.batch_sizes import fitting_batch_size, note_too_large
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipts
from jobs.submit import submit
from schemas.errors import ShardRetryable
from schemas.generation import Completion, Request
from schemas.job import JobSpec
from schemas.message import ShardMessage
from tests.jobs.working import counting_worker
from tests.oracle import check_output
from tests.toy import ToySession, expected_tokens, toy_spec
from tests.workers.attempts import CountingSession, submitted
from workers.tasks import handle_message

pytestmark = pytest.mark.services


def prompts_with(num_rows: int, **special: int) -> list[str]:
    """`prompt 0`, … and a special prompt at each given row."""
    rows = {row: name for name, row in special.items()}
    return [rows.get(row, f"prompt {row}") for row in range(num_rows)]


def work_off(job_id: str, settings: Settings, store: Store, queue: Queue, max_attempts: int = 40) -> int:
    """Attempts, each by a worker process's stand-in of its own, until the job has ended; how many died."""
    num_deaths, done = 0, set[tuple[int, int]]()
    for _ in range(max_attempts):
        reconcile_job(job_id, settings, store, queue)
        if read_status(job_id, store).is_terminal:
            return num_deaths
        for live in queue.live_deliveries():
            if (live.shard_index, live.delivery) not in done:
                done.add((live.shard_index, live.delivery))
                message = ShardMessage(job_id=job_id, shard_index=live.shard_index, delivery=live.delivery)
                try:
                    handle_message([message.to_json()], counting_worker(settings, store)[0])
                except SystemExit:
                    num_deaths += 1
    raise AssertionError("it does not end")


@pytest.fixture
def impatient(settings: Settings) -> Settings:
    return settings.model_copy(update={"retry_seconds": 0.001})


@pytest.fixture
def its_store(impatient: Settings, redis_url: str) -> Store:
    return Store(impatient, redis_url)


def errors_of(spec: JobSpec) -> dict[int, tuple[str, str]]:
    rows = check_output(spec).select(["row_index", "status", "error_kind", "error_message"]).to_pylist()
    return {row["row_index"]: (row["error_kind"], row["error_message"]) for row in rows if row["status"] == "error"}


def test_a_row_that_cannot_even_be_encoded_is_an_error_and_the_others_are_delivered(
    tmp_path: Path, impatient: Settings, its_store: Store, queue: Queue
) -> None:
    prompts = ["bad" if row in (1, 6) else f"prompt {row}" for row in range(8)]
    spec = toy_spec(tmp_path, 8, prompts, fail_to_encode="bad")
    job_id = submit(spec, impatient, its_store, queue)
    assert work_off(job_id, impatient, its_store, queue) == 2 * 2
    errors = errors_of(spec)
    assert {row: kind for row, (kind, _) in errors.items()} == {1: "poison_row", 6: "poison_row"}
    assert "2 times: ArithmeticError: nobody foresaw this prompt" in errors[1][1]


def test_a_row_whose_text_cannot_be_decoded_is_an_error_and_no_other_is_blamed(
    tmp_path: Path, impatient: Settings, its_store: Store, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = toy_spec(tmp_path, 8)
    decode = ToySession.decode

    def decode_but_one(session: ToySession, token_ids: Sequence[int]) -> str:
        if tuple(token_ids) == expected_tokens(spec, 5):
            raise UnicodeError("no such text")
        return decode(session, token_ids)

    monkeypatch.setattr(CountingSession, "decode", decode_but_one)
    job_id = submit(spec, impatient, its_store, queue)
    work_off(job_id, impatient, its_store, queue)
    assert {row: kind for row, (kind, _) in errors_of(spec).items()} == {5: "poison_row"}


def test_after_a_death_attempts_that_end_otherwise_count(
    tmp_path: Path, impatient: Settings, its_store: Store, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They find the same death again, and would go on for ever."""
    spec = toy_spec(tmp_path, 8, prompts_with(8, bad=3), fail_at_prompt="bad")  # the first of its batch to be through
    (message,) = submitted(spec, impatient, its_store, queue)
    with pytest.raises(SystemExit):
        handle_message([message.to_json()], counting_worker(impatient, its_store)[0])
    monkeypatch.setattr(CountingSession, "generate", no_device)
    assert work_off(message.job_id, impatient, its_store, queue) == 0
    num_of_search = 1
    assert its_store.shard_states(message.job_id).taken == {0: 1 + num_of_search + impatient.max_attempts}
    assert read_status(message.job_id, its_store).state == "incomplete"


def no_device(*_: object) -> Iterator[Completion]:
    raise ShardRetryable("the device does not answer")


def test_a_batch_that_has_no_memory_before_a_row_is_in_it_is_made_smaller_too(
    tmp_path: Path, impatient: Settings, its_store: Store, queue: Queue
) -> None:
    spec = toy_spec(tmp_path, 16, shard_rows=16, batch_size=8, no_cache_above_batch=2)
    job_id = submit(spec, impatient, its_store, queue)
    assert work_off(job_id, impatient, its_store, queue) == 0
    assert errors_of(spec) == {}
    layout = Layout(Path(spec.output))
    assert sorted(os.listdir(layout.batch_sizes_dir)) == ["4", "8"]
    assert [receipt.attempt for receipt in read_receipts(layout).values()] == [1]


def test_a_job_for_any_device_loads_its_model_once_and_counts_all_its_rounds(
    tmp_path: Path, impatient: Settings, its_store: Store, queue: Queue
) -> None:
    spec = toy_spec(tmp_path, 16, batch_size=4, oom_above_batch=2)
    assert spec.device == "auto"
    messages = submitted(spec, impatient, its_store, queue)
    context, sessions = counting_worker(impatient, its_store)
    for message in messages:
        handle_message([message.to_json()], context)
    assert len(sessions) == 1
    rounds = [receipt.speculation for receipt in read_receipts(Layout(Path(spec.output))).values()]
    assert rounds == [{"rounds_by_k": {"none": {"0": 4 * 2}}}] * 2


@pytest.mark.parametrize("num_samples", [1, 3])
def test_a_row_that_raises_what_nobody_foresaw_is_an_error_and_the_others_are_delivered(
    tmp_path: Path, impatient: Settings, its_store: Store, queue: Queue, num_samples: int
) -> None:
    spec = toy_spec(tmp_path, 16, prompts_with(16, bad=5), fail_at_prompt="bad", shard_rows=16, n=num_samples)
    job_id = submit(spec, impatient, its_store, queue)
    num_deaths = work_off(job_id, impatient, its_store, queue)
    assert 0 < num_deaths <= 4
    ((row, (kind, message)),) = errors_of(spec).items()
    assert (row, kind) == (5, "poison_row")
    assert "2 times: ArithmeticError: nobody foresaw this" in message
    assert read_status(job_id, its_store).state == "finished"


def test_the_search_has_a_budget_of_its_own_and_then_the_shard_is_given_up(
    tmp_path: Path, impatient: Settings, its_store: Store, queue: Queue
) -> None:
    spec = toy_spec(tmp_path, 8, ["bad"] * 8, fail_at_prompt="bad")
    tight = impatient.model_copy(update={"bisect_attempts": 2})
    job_id = submit(spec, tight, its_store, queue)
    num_first = 1  # with it the search begins
    assert work_off(job_id, tight, its_store, queue) == num_first + tight.bisect_attempts + tight.max_attempts
    assert read_status(job_id, its_store).state == "incomplete"


def test_a_smaller_batch_is_taken_and_remembered_for_other_workers_where_memory_is_short(
    tmp_path: Path, impatient: Settings, its_store: Store, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    monkeypatch.setattr(CountingSession, "_check_memory", checking_memory(tried))
    spec = toy_spec(tmp_path, 32, shard_rows=16, batch_size=8, oom_above_batch=3)
    for message in submitted(spec, impatient, its_store, queue):
        handle_message([message.to_json()], counting_worker(impatient, its_store)[0])
        tried.append(0)
    assert errors_of(spec) == {}
    layout = Layout(Path(spec.output))
    assert sorted(os.listdir(layout.batch_sizes_dir)) == ["4", "8"]
    assert fitting_batch_size(layout, 8) == 2
    in_flight_first = [8, 4, 2, 2, 4, 2, 2]
    assert tried == [*in_flight_first, 2, 2, 2, 2, 0, *[2] * 8, 0]
    assert [receipt.attempt for receipt in read_receipts(layout).values()] == [1, 1]


def checking_memory(tried: list[int]) -> Callable[[ToySession, Sequence[Request]], None]:
    check = ToySession._check_memory

    def note_and_check(session: ToySession, batch: Sequence[Request]) -> None:
        tried.append(len(batch))
        check(session, batch)

    return note_and_check


def test_a_row_too_large_alone_is_an_error_and_the_batch_stays(
    tmp_path: Path, impatient: Settings, its_store: Store, queue: Queue
) -> None:
    spec = toy_spec(tmp_path, 16, prompts_with(16, huge=6), shard_rows=16, oom_at_prompt="huge")
    job_id = submit(spec, impatient, its_store, queue)
    assert work_off(job_id, impatient, its_store, queue) == 0
    assert {row: kind for row, (kind, _) in errors_of(spec).items()} == {6: "out_of_memory"}
    assert fitting_batch_size(Layout(Path(spec.output)), spec.batch_size) == spec.batch_size


def test_a_deterministic_job_keeps_its_batch_and_its_shard_is_a_dead_letter_at_once(
    tmp_path: Path, impatient: Settings, its_store: Store, queue: Queue
) -> None:
    fixed = {"deterministic": True, "dtype": "bfloat16", "kv_length": 64, "num_threads": 1}
    spec = toy_spec(tmp_path, 8, oom_above_batch=2, **fixed)
    job_id = submit(spec, impatient, its_store, queue)
    work_off(job_id, impatient, its_store, queue)
    status = read_status(job_id, its_store)
    assert status.state == "incomplete"
    assert "--deterministic keeps its batch size: give a smaller --batch-size" in str(status.message)
    assert its_store.shard_states(job_id).taken == {0: 1}


def test_what_is_in_the_batch_is_on_disk_before_it_is_generated(
    tmp_path: Path, impatient: Settings, its_store: Store, queue: Queue
) -> None:
    spec = toy_spec(tmp_path, 8)
    job_id = submit(spec, impatient, its_store, queue)
    context, sessions = counting_worker(impatient, its_store)
    seen: list[set[int]] = []

    def look(row_index: int) -> None:
        (journal,) = Layout(Path(spec.output)).wip_dir(0).glob("*.inflight")
        in_batch: set[int] = set()
        for event in map(json.loads, filter(None, journal.read_text().splitlines())):
            in_batch |= {row for row, _ in event.get("admitted", ())}
            in_batch -= {row for row, _ in event.get("left", ())}
        seen.append(in_batch)

    context.session_for(load_plan(Path(spec.output)).spec)
    sessions[0].after_row = look
    (live,) = queue.live_deliveries()
    handle_message([ShardMessage(job_id=job_id, shard_index=0, delivery=live.delivery).to_json()], context)
    assert seen[:5] == [{0, 1, 2}, {0, 1}, {0}, set(), {4, 5, 6}]
    assert not Layout(Path(spec.output)).wip_dir(0).exists()


def test_sizes_are_halves_below_every_one_that_did_not_fit(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert fitting_batch_size(layout, 12) == 12
    note_too_large(layout, 12)
    assert [fitting_batch_size(layout, size) for size in (24, 12, 8, 1)] == [6, 6, 8, 1]
    note_too_large(layout, 3)
    note_too_large(layout, 6)
    assert [fitting_batch_size(layout, size) for size in (24, 12, 8, 1)] == [1, 1, 2, 1]
