"""The lease's holder: renewal, its own clock, and what the end of an attempt says."""

import time
from collections.abc import Callable

import pytest

from jobs.control.state import JobRecord, ShardProgress
from jobs.control.store import Store
from jobs.settings import Settings
from schemas.errors import (
    CommitConflict,
    CommitUnknown,
    InvalidJob,
    JobCancelled,
    LeaseLost,
    QueueUnavailable,
    ShardRetryable,
)
from schemas.message import ShardMessage
from workers.lease import Lease, outcome_of, take_lease
from workers.stopping import WorkerStopping, end_process

pytestmark = pytest.mark.services

JOB = "job-1"


@pytest.fixture
def message(store: Store) -> ShardMessage:
    store.register_job(
        JobRecord(
            job_id=JOB,
            output="/out",
            input="/in",
            model="m",
            device="cpu",
            num_rows=8,
            num_shards=1,
            created_at="2030-01-01T00:00:00+00:00",
        )
    )
    return next_message(store)


def next_message(store: Store) -> ShardMessage:
    return store.claim_deliveries(JOB, {0: store.shard_states(JOB).deliveries.get(0, 0)})[0]


def taken(
    store: Store, settings: Settings, message: ShardMessage, on_stall: Callable[[str], None] = end_process
) -> Lease:
    lease = take_lease(store, settings, message, "w1", num_rows=8, on_stall=on_stall)
    assert lease is not None
    return lease


class FlakyStore(Store):
    """Its broker goes away when it is told to."""

    is_away = False

    def _transition(self, verb: str, job_id: str, shard: int | str = "", *arguments: object) -> str | int:
        if self.is_away:
            raise QueueUnavailable("no broker")
        return super()._transition(verb, job_id, shard, *arguments)


@pytest.fixture
def flaky(settings: Settings, redis_url: str) -> FlakyStore:
    return FlakyStore(settings, redis_url)


@pytest.fixture
def impatient(settings: Settings) -> Settings:
    return settings.model_copy(update={"stall_seconds": 0.3, "lease_seconds": 0.6})


def test_a_message_that_was_served_is_dropped(store: Store, settings: Settings, message: ShardMessage) -> None:
    with taken(store, settings, message):
        assert take_lease(store, settings, message, "w2", num_rows=8) is None
    assert take_lease(store, settings, message, "w2", num_rows=8) is None


def test_it_is_renewed_as_long_as_rounds_go_on(store: Store, settings: Settings, message: ShardMessage) -> None:
    with taken(store, settings, message) as lease:
        until = time.monotonic() + 2 * settings.lease_seconds
        while time.monotonic() < until:
            lease.check()
            time.sleep(0.05)
        assert list(store.shard_states(JOB).running) == [0]
    assert store.shard_states(JOB).running == {}


def test_others_see_what_is_reported(store: Store, settings: Settings, message: ShardMessage) -> None:
    with taken(store, settings, message) as lease:
        lease.report(phase="generating", num_rows_done=5, attempt=3)
        time.sleep(settings.lease_seconds / 3 + 0.3)
        expected = ShardProgress(worker="w1", attempt=3, phase="generating", num_rows=8, num_rows_done=5)
        assert store.shard_states(JOB).running == {0: expected}


@pytest.mark.parametrize("stop", [Store.cancel_job, lambda store, job: store.fail_job(job, "refused")])
def test_a_stopped_job_stops_the_attempt_within_about_a_second(
    store: Store, settings: Settings, message: ShardMessage, stop: object
) -> None:
    with pytest.raises(JobCancelled), taken(store, settings, message) as lease:
        lease.check()
        assert callable(stop)
        stop(store, JOB)
        began = time.monotonic()
        while time.monotonic() - began < 1.5:
            lease.check()
            time.sleep(0.02)
    assert time.monotonic() - began < 1.5
    assert store.shard_states(JOB).failures == {0: 0}


def test_a_lease_that_another_took_is_lost(
    store: Store, settings: Settings, message: ShardMessage, redis_server: object
) -> None:
    lease = taken(store, settings, message)  # not entered: nobody renews it
    time.sleep(settings.lease_seconds + 0.1)
    with taken(store, settings, next_message(store)):
        with pytest.raises(LeaseLost, match="another attempt may hold it"):
            lease.confirm()
        with pytest.raises(LeaseLost):
            lease.check()


def test_the_holders_own_clock_ends_it_while_the_broker_is_silent(
    flaky: FlakyStore, settings: Settings, message: ShardMessage
) -> None:
    with pytest.raises(LeaseLost, match="not confirmed"), taken(flaky, settings, message) as lease:
        flaky.is_away = True
        until = time.monotonic() + 2 * settings.lease_seconds
        while time.monotonic() < until:
            lease.check()
            time.sleep(0.02)


def test_a_broker_out_of_reach_does_not_stop_what_is_ready_to_publish(
    flaky: FlakyStore, settings: Settings, message: ShardMessage
) -> None:
    lease = taken(flaky, settings, message)
    flaky.is_away = True
    lease.confirm()


def test_a_user_who_cancels_does_not_stop_what_is_ready_to_publish(
    store: Store, settings: Settings, message: ShardMessage
) -> None:
    lease = taken(store, settings, message)
    store.cancel_job(JOB)
    lease.confirm()


def test_a_holder_that_does_not_move_loses_it_and_is_ended(
    impatient: Settings, redis_url: str, message: ShardMessage
) -> None:
    why: list[str] = []
    store = Store(impatient, redis_url)
    with taken(store, impatient, message, on_stall=why.append):
        time.sleep(1.6)
        assert store.shard_states(JOB).running == {}
    assert why[0] == f"shard 0 of {JOB} has not moved for 0.3 s"


def test_a_model_that_loads_is_given_more_time(impatient: Settings, redis_url: str, message: ShardMessage) -> None:
    why: list[str] = []
    store = Store(impatient, redis_url)
    with taken(store, impatient, message, on_stall=why.append) as lease:
        lease.report(phase="loading")
        time.sleep(1.3)
        assert list(store.shard_states(JOB).running) == [0]
    assert why == []


def test_what_an_ending_says_of_the_shard() -> None:
    assert {outcome_of(error) for error in (None, CommitConflict("x"))} == {"done"}
    assert {outcome_of(kind("x")) for kind in (JobCancelled, LeaseLost, InvalidJob, WorkerStopping)} == {"forgiven"}
    assert {outcome_of(kind("x")) for kind in (ShardRetryable, CommitUnknown, ValueError)} == {"failed"}


def test_a_failed_attempt_leaves_its_words_and_gives_the_lease_back(
    store: Store, settings: Settings, message: ShardMessage
) -> None:
    with pytest.raises(ShardRetryable), taken(store, settings, message):
        raise ShardRetryable("out of memory\nat step 3")
    states = store.shard_states(JOB)
    assert (states.running, states.failures) == ({}, {0: 1})
    assert states.errors == {0: "out of memory at step 3"}
