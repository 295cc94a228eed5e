"""The reconciler: what is lost is enqueued again, what is not is left alone, whoever looks and how often."""

import multiprocessing
import random
import shutil
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from jobs.control.queue import LiveDelivery, Queue
from jobs.control.reconcile import MAX_QUEUED_SHARDS, lost_shards, reconcile_all, reconcile_forever, reconcile_job
from jobs.control.state import ShardProgress, ShardStates
from jobs.control.status import read_status
from jobs.control.store import Store
from jobs.settings import Settings
from jobs.submit import submit
from schemas.errors import NotFound
from schemas.message import ShardMessage
from tests.oracle import check_output
from tests.services import Server
from tests.toy import load_session, toy_spec
from workers.context import WorkerContext, WorkerOptions
from workers.shard import run_shard
from workers.tasks import handle_message

pytestmark = pytest.mark.services

PROGRESS = ShardProgress(worker="w")


def message_of(live: LiveDelivery) -> ShardMessage:
    return ShardMessage(job_id=live.job_id, shard_index=live.shard_index, delivery=live.delivery)


def waiting(queue: Queue) -> list[tuple[int, int]]:
    """(shard, number of its message), for all that are live."""
    return sorted((live.shard_index, live.delivery) for live in queue.live_deliveries())


def context_of(settings: Settings, store: Store) -> WorkerContext:
    return WorkerContext(settings, store, WorkerOptions(name="w1", device="cpu"), load_session)


class TestLostShards:
    """The rule alone: which of the missing shards nobody runs and no message stands for."""

    SETTINGS = Settings(data_dir=Path("/d"), grace_seconds=30)

    def lost(self, states: ShardStates, *deliveries: tuple[int, float | None]) -> list[int]:
        live = [LiveDelivery("j", 0, number, seconds) for number, seconds in deliveries]
        return lost_shards([0], states, live, self.SETTINGS)

    def test_a_shard_that_was_never_enqueued(self) -> None:
        assert self.lost(ShardStates()) == [0]

    def test_its_message_waits(self) -> None:
        assert self.lost(ShardStates(deliveries={0: 3}, taken={0: 2}), (3, None)) == []

    def test_its_message_is_nowhere(self) -> None:
        assert self.lost(ShardStates(deliveries={0: 3}, taken={0: 2})) == [0]

    def test_only_an_old_message_waits(self) -> None:
        assert self.lost(ShardStates(deliveries={0: 3}, taken={0: 2}), (2, None)) == [0]

    def test_its_message_has_served_an_attempt(self) -> None:
        assert self.lost(ShardStates(deliveries={0: 3}, taken={0: 3}), (3, None)) == [0]

    def test_a_worker_has_just_received_its_message(self) -> None:
        assert self.lost(ShardStates(deliveries={0: 1}), (1, 29.0)) == []

    def test_a_worker_received_its_message_long_ago_and_never_began(self) -> None:
        assert self.lost(ShardStates(deliveries={0: 1}), (1, 31.0)) == [0]

    def test_a_worker_runs_it(self) -> None:
        assert self.lost(ShardStates(deliveries={0: 1}, taken={0: 1}, running={0: PROGRESS}), (1, 99.0)) == []

    def test_it_was_given_up(self) -> None:
        assert self.lost(ShardStates(dead={0: "x"})) == []


def test_looking_again_changes_nothing(tmp_path: Path, settings: Settings, store: Store, queue: Queue) -> None:
    job_id = submit(toy_spec(tmp_path, 24), settings, store, queue)
    for _ in range(3):
        reconcile_job(job_id, settings, store, queue)
        reconcile_all(settings, store, queue)
        assert waiting(queue) == [(0, 1), (1, 1), (2, 1)]


def test_messages_that_a_broker_lost_are_enqueued_again(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue, redis_server: Server
) -> None:
    impatient = settings.model_copy(update={"grace_seconds": 0.01})
    job_id = submit(toy_spec(tmp_path, 16), impatient, Store(impatient, redis_server.url), queue)
    with redis_server.client() as client:
        client.delete(f"{settings.key_prefix}shards.auto")
    assert waiting(queue) == []
    time.sleep(0.05)
    reconcile_job(job_id, impatient, Store(impatient, redis_server.url), queue)
    assert waiting(queue) == [(0, 2), (1, 2)]


def test_a_shard_whose_worker_died_is_enqueued_again_once_its_lease_has_passed(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue
) -> None:
    job_id = submit(toy_spec(tmp_path, 8), settings, store, queue)
    (live,) = queue.live_deliveries()
    store.take_lease(message_of(live), "somebody", PROGRESS)
    reconcile_job(job_id, settings, store, queue)
    assert waiting(queue) == [(0, 1)]
    time.sleep(settings.lease_seconds)
    reconcile_job(job_id, settings, store, queue)
    assert waiting(queue) == [(0, 1), (0, 2)]


def test_a_job_that_is_done_is_finished_whoever_looks(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the last worker died between its receipt and the manifest."""
    monkeypatch.setattr("workers.shard.finish_job", lambda *_: None)
    spec = toy_spec(tmp_path, 16)
    job_id = submit(spec, settings, store, queue)
    for live in queue.live_deliveries():
        run_shard(message_of(live), context_of(settings, store))
    assert read_status(job_id, store).state == "running"
    reconcile_all(settings, store, queue)
    check_output(spec)
    assert (read_status(job_id, store).state, store.open_jobs()) == ("finished", [])


def test_a_job_whose_other_shards_are_dead_is_incomplete(tmp_path: Path, settings: Settings, queue: Queue) -> None:
    once = settings.model_copy(update={"max_attempts": 1})
    store = Store(once, str(settings.redis_url))
    # Row 11 is the first of its shard to be done, so that nothing of the shard is saved.
    job_id = submit(toy_spec(tmp_path, 16, fail_at_prompt="prompt 11"), once, store, queue)
    first, second = sorted(queue.live_deliveries(), key=lambda live: live.shard_index)
    run_shard(message_of(first), context_of(once, store))
    with pytest.raises(ArithmeticError):
        run_shard(message_of(second), context_of(once, store))
    assert read_status(job_id, store).state == "running"
    reconcile_all(once, store, queue)
    status = read_status(job_id, store)
    assert (status.state, status.num_ok, status.num_shards_dead) == ("incomplete", 8, 1)
    assert status.message == "shard 1: nobody foresaw this"
    assert [(one.first_row, one.end_row) for one in status.missing_rows] == [(8, 16)]
    assert store.open_jobs() == []


def drain(queue: Queue) -> None:
    with queue.app.connection_for_read() as connection:
        while connection.default_channel.basic_get("shards.auto", no_ack=True):
            pass


@pytest.mark.parametrize("stop", ["cancel", "fail"])
def test_a_stopped_job_is_left_alone(tmp_path: Path, settings: Settings, store: Store, queue: Queue, stop: str) -> None:
    job_id = submit(toy_spec(tmp_path, 8), settings, store, queue)
    drain(queue)
    assert store.cancel_job(job_id) if stop == "cancel" else store.fail_job(job_id, "refused")
    hasty = settings.model_copy(update={"grace_seconds": 0.001})
    reconcile_job(job_id, hasty, Store(hasty, str(settings.redis_url)), queue)
    assert waiting(queue) == []


def test_a_job_whose_directory_is_gone_fails_and_the_others_go_on(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue
) -> None:
    spec, other = toy_spec(tmp_path / "a", 8), toy_spec(tmp_path / "b", 8)
    gone, there = (submit(one, settings, store, queue) for one in (spec, other))
    shutil.rmtree(spec.output)
    reconcile_all(settings, store, queue)
    assert "holds no job" in str(store.job(gone).failed)
    assert store.open_jobs() == [there]


def test_an_unknown_job_is_not_found(settings: Settings, store: Store, queue: Queue) -> None:
    with pytest.raises(NotFound):
        reconcile_job("job-nope", settings, store, queue)


def test_a_large_job_is_enqueued_a_part_at_a_time(tmp_path: Path, settings: Settings, queue: Queue) -> None:
    num_shards, patient = MAX_QUEUED_SHARDS + 50, settings.model_copy(update={"grace_seconds": 60})
    store = Store(patient, str(settings.redis_url))
    job_id = submit(toy_spec(tmp_path, num_shards, shard_rows=1), patient, store, queue)
    assert waiting(queue) == [(shard, 1) for shard in range(MAX_QUEUED_SHARDS)]
    with queue.app.connection_for_read() as connection:
        for _ in range(10):
            connection.default_channel.basic_get("shards.auto", no_ack=True)
    reconcile_job(job_id, patient, store, queue)
    assert waiting(queue) == [(shard, 1) for shard in range(10, MAX_QUEUED_SHARDS + 10)]


class TestManyAtOnce:
    NUM_RECONCILERS = 3

    def test_with_messages_lost_doubled_and_workers_dying_every_row_is_done_once(
        self, tmp_path: Path, settings: Settings, redis_url: str
    ) -> None:
        """And a shard never has two messages that would both be done."""
        chaos = settings.model_copy(
            update={
                "lease_seconds": 0.3,
                "grace_seconds": 0.4,
                "reconcile_seconds": 0.03,
                "retry_seconds": 0.01,
                "max_attempts": 1000,
            }
        )
        store, queue = Store(chaos, redis_url), Queue(chaos, redis_url)
        spec = toy_spec(tmp_path, 36, shard_rows=2)
        spawn = multiprocessing.get_context("spawn")
        reconcilers = [
            spawn.Process(target=reconcile_in_a_process, args=[chaos, redis_url]) for _ in range(self.NUM_RECONCILERS)
        ]
        over = threading.Event()
        workers = [threading.Thread(target=work, args=[chaos, redis_url, seed, over]) for seed in range(2)]
        job_id = submit(spec, chaos, store, queue)
        for started in (*reconcilers, *workers):
            started.start()
        try:
            deadline = time.monotonic() + 120
            while not read_status(job_id, store).is_terminal:
                assert time.monotonic() < deadline
                assert [shard for shard, count in effective(job_id, store, queue).items() if count > 1] == []
        finally:
            over.set()
            for worker in workers:
                worker.join()
            for reconciler in reconcilers:
                reconciler.kill()
                reconciler.join()
        check_output(spec)
        assert max(store.shard_states(job_id).deliveries.values()) > 1  # something was lost


def reconcile_in_a_process(settings: Settings, redis_url: str) -> None:
    reconcile_forever(settings, Store(settings, redis_url), Queue(settings, redis_url), threading.Event())


def effective(job_id: str, store: Store, queue: Queue) -> Counter[int]:
    """How many live messages of each shard an attempt would be begun from; doubles of one message serve one."""
    before = store.shard_states(job_id)
    live = {(one.shard_index, one.delivery) for one in queue.live_deliveries()}
    after = store.shard_states(job_id)
    return Counter(
        shard
        for shard, number in live
        if before.deliveries.get(shard) == after.deliveries.get(shard) == number > after.taken.get(shard, 0)
    )


def work(settings: Settings, redis_url: str, seed: int, over: threading.Event) -> None:
    """Takes messages as Celery does, and often loses them, doubles them or dies over them."""
    chance = random.Random(seed)
    store, queue = Store(settings, redis_url), Queue(settings, redis_url)
    context = WorkerContext(settings, store, WorkerOptions(name=f"w{seed}", device="cpu"), load_session)
    with queue.app.connection_for_read() as connection:
        while not over.is_set():
            received = connection.default_channel.basic_get("shards.auto")
            if received is None:
                time.sleep(0.01)
                continue
            message = ShardMessage.from_json(received.payload[0][0])
            fate = chance.choice(["done", "done", "lost", "doubled", "died", "never begun"])
            if fate == "doubled":
                queue.enqueue_shards([message, message], "auto")
            if fate == "died":
                store.take_lease(message, f"dead {chance.random()}", PROGRESS)
            if fate in ("done", "doubled"):
                handle_message([message.to_json()], context)
            if fate != "never begun":
                received.ack()
