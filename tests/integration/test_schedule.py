"""Real beat processes: however many there are, a tick makes one job."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from jobs.control.store import Store
from jobs.schedules.entries import Schedules
from jobs.schedules.spec import Schedule
from jobs.schedules.ticks import TICK_FORMAT, parse_tick
from jobs.settings import Settings
from tests.integration.conftest import ROOT, Cluster, Node, wait_until
from tests.oracle import check_output
from tests.services import Server
from tests.toy import toy_spec

pytestmark = pytest.mark.services

EVERY_SECONDS = 3
SENDING = "Sending due task often"
RECEIVED = re.compile(r"specbatch\.submit_scheduled\[\S+\] received")
DONE = re.compile(r"specbatch\.submit_scheduled\[\S+\] succeeded")
# Two leaders at once, as after a lock that was lost: every tick fires twice.
ALWAYS_LEADS = (
    "import sys; from jobs.schedules import beat; beat.TickScheduler._leads = lambda self: True; "
    "from jobs.cli import jobctl; sys.exit(jobctl(['beat', '--name', sys.argv[1]]))"
)


class Beat:
    def __init__(self, name: str, settings: Settings, directory: Path, code: str | None = None) -> None:
        self.name, self.log_path = name, directory / f"{name}.log"
        command = [sys.executable, *(["-c", code, name] if code else ["-m", "jobs.cli", "beat", "--name", name])]
        with self.log_path.open("wb") as log:
            environ = {**os.environ, **settings.to_environ()}
            self.process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=subprocess.STDOUT)

    @property
    def num_sent(self) -> int:
        return self.log_path.read_text().count(SENDING)


@pytest.fixture
def beats() -> Iterator[list[Beat]]:
    started: list[Beat] = []
    yield started
    for beat in started:
        beat.process.kill()
        beat.process.wait()


@pytest.fixture
def schedule(settings: Settings, redis_url: str, tmp_path: Path) -> Schedule:
    added = every_few_seconds(tmp_path)
    Schedules(settings, redis_url).add(added)
    return added


def every_few_seconds(directory: Path) -> Schedule:
    spec = toy_spec(directory, 3, output=str(directory / "out" / "{datetime}"))
    return Schedule(name="often", cron=f"* * * * * */{EVERY_SECONDS}", tz="Europe/Berlin", spec=spec)


def ticks_of_jobs(store: Store) -> list[str]:
    return [record.job_id.removeprefix("often-") for record in store.jobs()]


def check_ticks_and_outputs(store: Store, schedule: Schedule) -> None:
    """No tick twice, each with the output of its own time, in the schedule's zone."""
    names = ticks_of_jobs(store)
    assert len(names) == len(set(names))
    ticks = [parse_tick(name) for name in names]
    assert [tick.second % EVERY_SECONDS for tick in ticks] == [0] * len(ticks)
    local = datetime.now(ZoneInfo(schedule.tz)).replace(tzinfo=None)
    assert all(timedelta(0) <= local - tick < timedelta(minutes=3) for tick in ticks)
    outputs = [Path(record.output).name for record in store.jobs()]
    assert outputs == [tick.strftime(TICK_FORMAT) for tick in ticks] == names
    assert sorted(path.name for path in Path(schedule.spec.output).parent.iterdir()) == sorted(names)


def stop_and_wait_for_submits(running: list[Beat], node: Node, server: Server) -> int:
    """Until every tick that was sent is submitted; how many they were."""
    for beat in running:
        beat.process.send_signal(signal.SIGTERM)
        assert beat.process.wait(20) == 0
    with server.client() as client:
        wait_until(lambda: client.llen("specbatch:control") == 0, 30, "no tick waits in the queue")
    wait_until(lambda: len(DONE.findall(node.log)) == len(RECEIVED.findall(node.log)), 30, "every tick is submitted")
    return len(DONE.findall(node.log))


def test_two_beats_that_both_fire_make_one_job_for_each_tick(
    cluster: Cluster,
    beats: list[Beat],
    schedule: Schedule,
    settings: Settings,
    store: Store,
    redis_server: Server,
    tmp_path: Path,
) -> None:
    (node,) = cluster.start("w1")
    beats += [Beat(name, settings, tmp_path, ALWAYS_LEADS) for name in ("b1", "b2")]
    wait_until(lambda: all(beat.num_sent >= 3 for beat in beats), 60, "both beats have fired three times")
    num_sent = stop_and_wait_for_submits(beats, node, redis_server)
    check_ticks_and_outputs(store, schedule)
    # One beat fires a tick once, so none was left out; its last one may have been stopped while it was sent.
    assert max(beat.num_sent for beat in beats) - 1 <= len(ticks_of_jobs(store)) < num_sent
    for record in store.jobs():
        cluster.wait_for(record.job_id)
        check_output(schedule.spec_at(parse_tick(record.job_id.removeprefix("often-"))))


def test_one_beat_fires_and_another_takes_over_when_it_is_killed(
    cluster: Cluster,
    beats: list[Beat],
    schedule: Schedule,
    settings: Settings,
    store: Store,
    redis_server: Server,
    tmp_path: Path,
) -> None:
    (node,) = cluster.start("w1")
    beats += [Beat(name, settings, tmp_path) for name in ("b1", "b2")]
    wait_until(lambda: sum(beat.num_sent for beat in beats) >= 2, 60, "a beat has fired twice")
    assert sorted(beat.num_sent > 0 for beat in beats) == [False, True]
    leader, standby = sorted(beats, key=lambda beat: -beat.num_sent)
    health = [sys.executable, "-m", "jobs.cli", "healthcheck", "beat", "--name", standby.name]
    assert subprocess.run(health, cwd=ROOT, env={**os.environ, **settings.to_environ()}).returncode == 0
    leader.process.kill()
    leader.process.wait()
    wait_until(lambda: standby.num_sent >= 2, 40, "the other beat fires")
    stop_and_wait_for_submits([standby], node, redis_server)
    check_ticks_and_outputs(store, schedule)


def test_a_beat_outlives_a_restart_of_the_broker(beats: list[Beat], settings: Settings, tmp_path: Path) -> None:
    server = Server()
    try:
        settings = settings.model_copy(update={"redis_url": server.url})
        Schedules(settings, server.url).add(every_few_seconds(tmp_path))
        beats.append(Beat("b1", settings, tmp_path))
        wait_until(lambda: beats[0].num_sent >= 1, 40, "the beat has fired")
        server.kill()
        wait_until(lambda: "no broker at" in beats[0].log_path.read_text(), 20, "the beat has noticed")
        num_before = beats[0].num_sent
        server.restart()
        wait_until(lambda: beats[0].num_sent > num_before, 40, "the beat fires again")
        assert beats[0].process.poll() is None
    finally:
        server.stop()
