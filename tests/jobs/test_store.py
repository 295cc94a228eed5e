"""The store's transitions, on a real server."""

import threading
import time

import pytest

from jobs.control.state import JobRecord, ShardProgress, WorkerRecord
from jobs.control.store import Store
from jobs.settings import Settings
from schemas.errors import NotFound, QueueUnavailable
from schemas.message import ShardMessage
from tests.services import Server

pytestmark = pytest.mark.services

PROGRESS = ShardProgress(worker="w")


def record(job_id: str = "job-1", **changes: object) -> JobRecord:
    values = {
        "job_id": job_id,
        "output": "/out",
        "input": "/in.parquet",
        "model": "m",
        "device": "cpu",
        "num_rows": 20,
        "num_shards": 3,
        "created_at": "2030-01-01T00:00:00+00:00",
        **changes,
    }
    return JobRecord.model_validate(values)


@pytest.fixture
def job(store: Store) -> str:
    store.register_job(record())
    return "job-1"


def claim(store: Store, job: str, shard: int = 0, newest: int = 0) -> ShardMessage | None:
    messages = store.claim_deliveries(job, {shard: newest})
    return messages[0] if messages else None


def claimed(store: Store, job: str, shard: int = 0, newest: int = 0) -> ShardMessage:
    message = claim(store, job, shard, newest)
    assert message is not None
    return message


class TestJobs:
    def test_a_registered_job_is_read_back_as_it_was(self, store: Store) -> None:
        store.register_job(record())
        assert store.job("job-1") == record()
        assert store.jobs() == [record()]
        assert store.open_jobs() == ["job-1"]

    def test_registering_again_changes_nothing(self, store: Store, job: str) -> None:
        store.cancel_job(job)
        before = store.job(job)
        store.register_job(record(model="another"))
        assert store.job(job) == before

    def test_an_unknown_job_is_not_found(self, store: Store) -> None:
        for call in (store.job, store.cancel_job, store.reopen_job):
            with pytest.raises(NotFound, match="no job nope"):
                call("nope")
        with pytest.raises(NotFound, match="no job nope"):
            store.end_job("nope", "finished")

    def test_jobs_are_listed_oldest_first_and_without_those_whose_record_expired(
        self, store: Store, redis_server: Server, settings: Settings
    ) -> None:
        for job_id in ("job-b", "job-a", "job-c"):
            store.register_job(record(job_id))
            time.sleep(0.002)
        redis_server.client().delete(f"{settings.key_prefix}job:job-a")
        assert [job.job_id for job in store.jobs()] == ["job-b", "job-c"]

    def test_a_stopped_job_is_no_longer_open_and_keeps_its_first_reason(self, store: Store, job: str) -> None:
        assert store.fail_job(job, "the model is refused")
        assert store.fail_job(job, "another reason")
        assert store.open_jobs() == []
        assert store.job(job).failed == "the model is refused"

    def test_a_job_that_ended_can_not_be_cancelled(self, store: Store, job: str) -> None:
        assert store.end_job(job, "finished")
        assert not store.cancel_job(job)
        assert store.job(job).cancelled_at is None

    def test_an_ended_job_expires_and_is_kept_again_once_it_is_registered(
        self, store: Store, job: str, redis_server: Server, settings: Settings
    ) -> None:
        claim(store, job)
        store.end_job(job, "incomplete")
        client, keys = redis_server.client(), [f"{settings.key_prefix}job:job-1{name}" for name in ("", ":delivery")]
        assert all(client.ttl(key) > 0 for key in keys)
        store.register_job(record())
        assert all(client.ttl(key) == -1 for key in keys)

    def test_reopening_takes_back_what_stopped_the_job_and_its_dead_letters(self, store: Store, job: str) -> None:
        fail_until_dead(store, job)
        store.cancel_job(job)
        store.reopen_job(job)
        assert store.job(job) == record(num_reopened=1)
        assert store.open_jobs() == [job]
        assert store.shard_states(job).dead == {}
        assert claim(store, job, newest=3) is not None


class TestDeliveries:
    def test_numbers_count_up_and_each_shard_has_its_own(self, store: Store, job: str) -> None:
        assert [m.shard_index for m in store.claim_deliveries(job, {0: 0, 2: 0})] == [0, 2]
        assert store.shard_states(job).deliveries == {0: 1, 2: 1}

    def test_of_many_callers_that_saw_the_same_one_gets_the_message(self, store: Store, job: str) -> None:
        answers: list[ShardMessage] = []

        def look() -> None:
            answers.extend(store.claim_deliveries(job, {0: 0}))

        threads = [threading.Thread(target=look) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [answer.delivery for answer in answers] == [1]

    def test_a_message_on_its_way_is_not_replaced_before_the_grace_is_over(
        self, settings: Settings, redis_url: str
    ) -> None:
        store = Store(settings.model_copy(update={"grace_seconds": 0.2}), redis_url)
        store.register_job(record())
        claimed(store, "job-1")
        assert claim(store, "job-1", newest=1) is None
        time.sleep(0.25)
        assert claimed(store, "job-1", newest=1).delivery == 2

    def test_a_stopped_job_gets_no_messages(self, store: Store, job: str) -> None:
        store.cancel_job(job)
        assert claim(store, job) is None

    def test_an_unknown_job_gets_no_messages(self, store: Store) -> None:
        assert claim(store, "nope") is None


class TestLeases:
    def test_one_owner_at_a_time_and_a_repeated_call_of_the_same_owner_is_answered_alike(
        self, store: Store, job: str
    ) -> None:
        message = claimed(store, job)
        assert store.take_lease(message, "a", PROGRESS) == "taken"
        assert store.take_lease(message, "a", PROGRESS) == "taken"
        assert store.take_lease(message, "b", PROGRESS) == "held"
        assert store.shard_states(job).failures == {0: 1}

    def test_a_message_serves_one_attempt(self, store: Store, job: str) -> None:
        message = claimed(store, job)
        store.take_lease(message, "a", PROGRESS)
        store.release_lease(job, 0, "a", "done")
        assert store.take_lease(message, "b", PROGRESS) == "stale"

    def test_a_message_that_is_not_the_newest_is_stale(self, store: Store, job: str) -> None:
        old = claimed(store, job)
        store.take_lease(old, "a", PROGRESS)
        store.release_lease(job, 0, "a", "forgiven")
        new = claimed(store, job, newest=1)
        assert store.take_lease(old, "b", PROGRESS) == "stale"
        assert store.take_lease(new, "b", PROGRESS) == "taken"

    def test_nothing_is_taken_of_a_job_that_is_stopped_or_unknown(self, store: Store, job: str) -> None:
        message = claimed(store, job)
        store.cancel_job(job)
        assert store.take_lease(message, "a", PROGRESS) == "cancelled"
        assert store.take_lease(message.model_copy(update={"job_id": "nope"}), "a", PROGRESS) == "unknown"

    def test_no_message_is_claimed_for_a_leased_shard(self, store: Store, job: str) -> None:
        store.take_lease(claimed(store, job), "a", PROGRESS)
        assert claim(store, job, newest=1) is None

    def test_only_the_owner_renews_and_releases(self, store: Store, job: str) -> None:
        store.take_lease(claimed(store, job), "a", PROGRESS)
        assert store.renew_lease(job, 0, "b", PROGRESS) == "lost"
        store.release_lease(job, 0, "b", "done")
        assert store.renew_lease(job, 0, "a", PROGRESS) == "held"

    def test_a_lease_passes_when_it_is_not_renewed(self, store: Store, job: str, settings: Settings) -> None:
        store.take_lease(claimed(store, job), "a", PROGRESS)
        time.sleep(settings.lease_seconds * 0.7)
        assert store.renew_lease(job, 0, "a", PROGRESS) == "held"
        time.sleep(settings.lease_seconds * 0.7)
        assert list(store.shard_states(job).running) == [0]
        time.sleep(settings.lease_seconds * 0.5)
        assert store.renew_lease(job, 0, "a", PROGRESS) == "lost"
        assert store.shard_states(job).running == {}
        assert claimed(store, job, newest=1).delivery == 2

    def test_a_renewal_tells_that_the_job_was_stopped(self, store: Store, job: str) -> None:
        store.take_lease(claimed(store, job), "a", PROGRESS)
        store.fail_job(job, "refused")
        assert store.renew_lease(job, 0, "a", PROGRESS) == "failed"

    def test_progress_is_what_the_owner_reported_last(self, store: Store, job: str) -> None:
        store.take_lease(claimed(store, job), "a", PROGRESS)
        later = PROGRESS.model_copy(update={"num_rows_done": 3, "attempt": 2})
        store.renew_lease(job, 0, "a", later)
        assert store.shard_states(job).running == {0: later}


def fail_once(store: Store, job: str, newest: int, rows_added: bool = False) -> None:
    time.sleep(0.25)  # retry_seconds is 0.2 here
    message = claimed(store, job, newest=newest)
    assert store.take_lease(message, f"owner {newest}", PROGRESS) == "taken"
    if rows_added:
        store.note_rows_added(job, 0)
    store.release_lease(job, 0, f"owner {newest}", "failed", f"error {newest}")


def fail_until_dead(store: Store, job: str) -> None:
    for newest in range(3):
        fail_once(store, job, newest)
        time.sleep(0.2 * newest)


class TestFailures:
    def test_attempts_that_add_no_row_make_a_dead_letter(self, store: Store, job: str) -> None:
        fail_until_dead(store, job)
        assert store.shard_states(job).dead == {0: "error 2"}
        assert claim(store, job, newest=3) is None

    def test_an_attempt_that_added_rows_begins_the_count_anew(self, store: Store, job: str) -> None:
        fail_once(store, job, 0)
        fail_once(store, job, 1, rows_added=True)
        assert store.shard_states(job).failures == {}
        fail_once(store, job, 2)
        assert store.shard_states(job).failures == {0: 1}

    def test_a_failed_shard_waits_longer_each_time(self, store: Store, job: str, settings: Settings) -> None:
        fail_once(store, job, 0)
        assert claim(store, job, newest=1) is None
        time.sleep(settings.retry_seconds)
        message = claimed(store, job, newest=1)
        store.take_lease(message, "x", PROGRESS)
        store.release_lease(job, 0, "x", "failed", "again")
        time.sleep(settings.retry_seconds)
        assert claim(store, job, newest=2) is None
        time.sleep(settings.retry_seconds)
        assert claim(store, job, newest=2) is not None

    def test_workers_that_die_without_a_word_use_up_a_shard_too(self, settings: Settings, redis_url: str) -> None:
        store = Store(settings.model_copy(update={"lease_seconds": 0.1, "max_attempts": 2}), redis_url)
        store.register_job(record())
        for newest in range(2):
            progress = PROGRESS.model_copy(update={"attempt": 6 + newest})
            store.take_lease(claimed(store, "job-1", newest=newest), f"owner {newest}", progress)
            time.sleep(0.15)
        assert claim(store, "job-1", newest=2) is None
        assert store.shard_states("job-1").dead == {0: "its workers died without a word"}
        letter = store.dead_shards("job-1")[0]
        assert (letter.worker, letter.attempt) == ("w", 7)
        assert abs(letter.at_ms / 1000 - time.time()) < 5

    def test_an_attempt_that_was_told_to_stop_does_not_count(self, store: Store, job: str) -> None:
        fail_once(store, job, 0)
        time.sleep(0.25)
        store.take_lease(claimed(store, job, newest=1), "b", PROGRESS)
        store.release_lease(job, 0, "b", "forgiven")
        assert store.shard_states(job).failures == {0: 1}


class TestWorkersAndMessages:
    def test_a_worker_is_listed_until_it_says_goodbye(self, store: Store) -> None:
        beats = [
            WorkerRecord(name=name, device="cpu", queues=("control",), hostname="h", pid=1, started_at="now")
            for name in ("b", "a")
        ]
        for beat in beats:
            store.beat(beat)
        assert store.workers() == [beats[1], beats[0]]
        store.forget_worker("a")
        assert store.workers() == [beats[0]]

    def test_refused_messages_are_kept_newest_first(self, store: Store) -> None:
        store.refuse_message("one", "no task x")
        store.refuse_message("two", "not JSON")
        kept = [(entry["body"], entry["reason"]) for entry in store.refused_messages()]
        assert kept == [("two", "not JSON"), ("one", "no task x")]


class TestUnavailable:
    @pytest.mark.parametrize("scheme", ["unix:///nowhere/s", "redis://user:secret@127.0.0.1:1/0"])
    def test_a_broker_that_is_away_is_one_line_without_the_password(self, settings: Settings, scheme: str) -> None:
        store = Store(settings, scheme)
        began = time.monotonic()
        for call in (store.ping, store.jobs, lambda: store.job("x"), lambda: store.shard_states("x")):
            with pytest.raises(QueueUnavailable, match="no broker at") as caught:
                call()
            assert "secret" not in str(caught.value)
            assert "\n" not in str(caught.value)
        assert time.monotonic() - began < 8

    def test_two_prefixes_on_one_server_do_not_see_each_other(
        self, settings: Settings, redis_url: str, store: Store, job: str
    ) -> None:
        other = Store(settings.model_copy(update={"key_prefix": "other:"}), redis_url)
        assert other.jobs() == []
        assert claim(store, job) is not None
