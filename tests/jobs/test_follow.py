"""Following a job through a broker that goes away."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs import follow
from jobs.control.queue import Queue, queues_of
from jobs.control.state import WorkerRecord
from jobs.control.status import JobStatus
from jobs.control.store import Store
from jobs.follow import Follower, no_worker_for, workers_for
from jobs.local.broker import NamedBroker
from jobs.local.children import Children
from jobs.settings import Settings
from jobs.submit import submit
from schemas.errors import NotFound, QueueUnavailable
from schemas.job import DeviceKinds
from tests.services import Server
from tests.toy import toy_spec

pytestmark = pytest.mark.services


@pytest.fixture
def server() -> Iterator[Server]:
    own = Server()
    yield own
    own.stop()


@pytest.fixture
def seen() -> list[tuple[JobStatus, str]]:
    return []


@pytest.fixture
def follower(server: Server, tmp_path: Path, seen: list[tuple[JobStatus, str]]) -> Follower:
    settings = Settings(redis_url=server.url, data_dir=tmp_path / "data")
    store, queue = Store(settings, server.url), Queue(settings, server.url)
    return Follower(
        settings, NamedBroker(server.url), store, queue, Children(), lambda status, why: seen.append((status, why))
    )


def submitted(follower: Follower, directory: Path) -> str:
    return submit(toy_spec(directory, 4), follower.settings, follower.store, follower.queue)


def test_a_job_that_nobody_works_on_says_so_until_the_time_is_over(
    follower: Follower, tmp_path: Path, seen: list[tuple[JobStatus, str]]
) -> None:
    job_id = submitted(follower, tmp_path)
    assert follower.follow(job_id, time.monotonic() + 0.5) is None
    status, waiting = seen[-1]
    assert (status.state, waiting) == ("queued", no_worker_for("auto"))


def test_a_job_for_a_device_is_not_taken_by_a_worker_on_another(follower: Follower) -> None:
    facts = {"hostname": "h", "pid": 1, "started_at": "2026-01-01T00:00:00+00:00"}
    for device in ("auto", "cpu"):
        follower.store.beat(WorkerRecord(name=f"on-{device}", device=device, queues=tuple(queues_of(device)), **facts))
    names = {device: [w.name for w in workers_for(device, follower.store)] for device in DeviceKinds}
    assert names == {"auto": ["on-auto", "on-cpu"], "cpu": ["on-cpu"], "cuda": [], "hpu": []}


def test_a_job_that_is_not_there_is_not_waited_for(follower: Follower) -> None:
    with pytest.raises(NotFound):
        follower.follow("job-0")


def test_a_broker_that_comes_back_is_waited_for(follower: Follower, server: Server, tmp_path: Path) -> None:
    job_id = submitted(follower, tmp_path)
    server.kill()

    def come_back() -> None:
        time.sleep(0.5)
        server.restart()
        follower.store.cancel_job(job_id)

    helper = threading.Thread(target=come_back)
    helper.start()
    status = follower.follow(job_id, time.monotonic() + 20)
    helper.join()
    assert status is not None and status.state == "cancelled"


def test_a_broker_that_stays_away_is_given_up(
    follower: Follower, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "OUTAGE_SECONDS", 0.5)
    job_id = submitted(follower, tmp_path)
    server.kill()
    with pytest.raises(QueueUnavailable):
        follower.follow(job_id, time.monotonic() + 20)
