"""Schedules: ticks of a cron line, what they expand to, how they are kept, and one job for each."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.cli import jobctl
from jobs.control.store import Store
from jobs.schedules.beat import TickScheduler
from jobs.schedules.entries import ScheduleEntry, Schedules
from jobs.schedules.schedule import run_tick
from jobs.schedules.spec import LastTick, Schedule
from jobs.schedules.ticks import CronLine, expand, fields_of, parse_tick, tick_name
from jobs.settings import Settings
from schemas.errors import InvalidJob, NotFound
from schemas.job import JobSpec
from tests.services import Server
from tests.toy import toy_spec

BERLIN = ZoneInfo("Europe/Berlin")
LINES = st.sampled_from(["* * * * *", "0 2 * * *", "*/7 3-5 * * mon", "@hourly", "* * * * * */2", "30 2 29 2 *"])
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
MOMENTS = st.datetimes(datetime(2024, 1, 1), datetime(2032, 1, 1), timezones=st.just(UTC))


@given(LINES, ZONES, MOMENTS)
def test_a_moment_lies_between_its_tick_and_the_next_one(line: str, tz: str, moment: datetime) -> None:
    cron = CronLine(line, tz)
    before, after = cron.at_or_before(moment), cron.after(moment)
    assert before <= moment < after
    assert cron.at_or_before(after) == after
    assert cron.at_or_before(after - timedelta(microseconds=1)) == before


@given(LINES, ZONES, MOMENTS)
def test_a_ticks_name_names_its_wall_clock_time(line: str, tz: str, moment: datetime) -> None:
    tick = CronLine(line, tz).after(moment)
    assert parse_tick(tick_name(tick)) == tick.replace(tzinfo=None)


def test_a_daily_tick_is_at_the_zones_own_hour_in_summer_and_winter() -> None:
    cron = CronLine("0 2 * * *", "Europe/Berlin")
    assert cron.after(datetime(2026, 1, 5, tzinfo=UTC)) == datetime(2026, 1, 5, 1, tzinfo=UTC)
    assert cron.after(datetime(2026, 7, 5, tzinfo=UTC)) == datetime(2026, 7, 6, 0, tzinfo=UTC)


def test_the_hour_that_a_clock_change_repeats_counts_once() -> None:
    cron = CronLine("30 2 * * *", "Europe/Berlin")
    first = cron.after(datetime(2026, 10, 24, 12, tzinfo=BERLIN))
    second = cron.after(first)
    assert second.astimezone(UTC) - first.astimezone(UTC) == timedelta(hours=1)
    assert tick_name(first) == tick_name(second) == "2026-10-25T02-30-00"


@pytest.mark.parametrize(
    ("line", "tz", "word"),
    [
        ("", "UTC", "--cron"),
        ("often", "UTC", "--cron"),
        ("61 * * * *", "UTC", "--cron"),
        ("0 2 * *", "UTC", "--cron"),
        ("0 0 31 2 *", "UTC", "--cron"),
        ("0 2 * * *", "Mars/Olympus", "--tz"),
        ("0 2 * * *", "", "--tz"),
        ("0 2 * * *", "../etc/passwd", "--tz"),
        ("0 2 * * *", "Europe", "--tz"),
    ],
)
def test_a_bad_cron_line_or_zone_is_refused(line: str, tz: str, word: str) -> None:
    with pytest.raises(InvalidJob, match=word):
        CronLine(line, tz)


def test_fields_of_paths_are_the_ticks_own() -> None:
    tick = datetime(2026, 3, 4, 5, 6, 7, tzinfo=BERLIN)
    assert expand("in/{date}/x-{datetime}.parquet", tick) == "in/2026-03-04/x-2026-03-04T05-06-07.parquet"
    assert expand("no fields", tick) == "no fields"
    assert fields_of("{date}/{datetime}/{date}") == {"date", "datetime"}
    with pytest.raises(InvalidJob, match=r"\{day\}"):
        fields_of("in/{day}.parquet")


def schedule_of(spec: JobSpec, name: str = "nightly", cron: str = "0 2 * * *", tz: str = "UTC") -> Schedule:
    return Schedule(name=name, cron=cron, tz=tz, spec=spec)


def test_a_schedule_needs_an_output_of_its_own_for_each_tick(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match=r"\{date\}"):
        schedule_of(JobSpec(input="in", output="out", model="m"))
    with pytest.raises(InvalidJob, match="schedule name"):
        schedule_of(JobSpec(input="in", output="{date}", model="m"), name="a/b")
    spec = schedule_of(JobSpec(input="in-{date}", output="{datetime}", model="m")).spec_at(datetime(2026, 1, 2, 3))
    assert (spec.input, spec.output, spec.model) == ("in-2026-01-02", "2026-01-02T03-00-00", "m")


@pytest.fixture
def schedules(settings: Settings, redis_url: str) -> Iterator[Schedules]:
    opened = Schedules(settings, redis_url)
    yield opened
    opened.close()


def scheduled_spec(directory: Path) -> JobSpec:
    return toy_spec(directory, 4, output=str(directory / "out-{datetime}"))


@pytest.mark.services
def test_schedules_are_kept_as_they_were_given(schedules: Schedules, tmp_path: Path) -> None:
    spec = scheduled_spec(tmp_path)
    nightly, hourly = schedule_of(spec, tz="Europe/Berlin"), schedule_of(spec, name="hourly", cron="@hourly")
    schedules.add(nightly)
    schedules.add(hourly)
    assert schedules.all() == [(hourly, None), (nightly, None)]
    assert schedules.get("nightly") == nightly
    with pytest.raises(InvalidJob, match="remove nightly first"):
        schedules.add(nightly)
    schedules.remove("nightly")
    assert schedules.all() == [(hourly, None)]
    for missing in (schedules.remove, schedules.get):
        with pytest.raises(NotFound, match="nightly"):
            missing("nightly")


@pytest.mark.services
def test_a_new_schedule_first_fires_at_its_next_tick(schedules: Schedules, tmp_path: Path) -> None:
    schedules.add(schedule_of(scheduled_spec(tmp_path)))
    entry = ScheduleEntry.from_key(schedules._key("nightly"), app=schedules.app)
    is_due, seconds = entry.is_due()
    assert not is_due
    assert entry.due_at == CronLine("0 2 * * *").after(datetime.now(UTC))
    assert 0 < seconds <= 24 * 3600
    entry.last_run_at -= timedelta(days=3)
    is_due, seconds = entry.is_due()
    assert is_due
    assert 0 < seconds <= 24 * 3600


@pytest.mark.services
@pytest.mark.parametrize("garbage", ["", "x", "[]", "7", '{"name": 3}', '{"__type__": "crontab", "x": 1}', b"\xff"])
def test_beat_goes_on_where_an_entry_is_garbage(
    schedules: Schedules, settings: Settings, redis_server: Server, tmp_path: Path, garbage: str | bytes
) -> None:
    schedules.add(schedule_of(scheduled_spec(tmp_path)))
    app = schedules.app
    with redis_server.client() as client:
        client.zadd(app.redbeat_conf.schedule_key, {"specbatch:beat:bad": 0})
        client.zadd(app.redbeat_conf.schedule_key, {schedules._key("nightly"): 0})
        client.hset("specbatch:beat:bad", mapping={"definition": garbage, "meta": garbage})
    scheduler = TickScheduler(app, reconciler=threading.current_thread(), name="b", lazy=True)
    assert list(scheduler.schedule) == ["nightly"]


@pytest.mark.services
def test_a_tick_that_comes_twice_makes_one_job(
    schedules: Schedules, settings: Settings, redis_url: str, store: Store, tmp_path: Path
) -> None:
    schedules.add(schedule_of(scheduled_spec(tmp_path)))
    tick = "2026-11-30T02-00-00"
    job_id = run_tick("nightly", tick, settings, redis_url)
    assert run_tick("nightly", tick, settings, redis_url) == job_id == f"nightly-{tick}"
    assert run_tick("nightly", "2026-12-01T02-00-00", settings, redis_url) != job_id
    assert [Path(record.output).name for record in store.jobs()] == [f"out-{tick}", "out-2026-12-01T02-00-00"]
    assert schedules.all()[0][1] == LastTick(tick="2026-12-01T02-00-00", job_id="nightly-2026-12-01T02-00-00")


@pytest.mark.services
def test_a_tick_that_cannot_be_submitted_is_noted(
    schedules: Schedules, settings: Settings, redis_url: str, store: Store, tmp_path: Path
) -> None:
    spec = scheduled_spec(tmp_path).model_copy(update={"input": str(tmp_path / "{date}.parquet")})
    schedules.add(schedule_of(spec))
    with pytest.raises(InvalidJob, match=r"2026-11-30\.parquet"):
        run_tick("nightly", "2026-11-30T02-00-00", settings, redis_url)
    ((_, noted),) = schedules.all()
    assert noted is not None and noted.job_id is None and "2026-11-30.parquet" in str(noted.error)
    assert store.jobs() == []


@pytest.mark.services
def test_the_tick_of_a_removed_schedule_makes_no_job(settings: Settings, redis_url: str, store: Store) -> None:
    assert run_tick("nightly", "2026-11-30T02-00-00", settings, redis_url) is None
    assert store.jobs() == []


@pytest.fixture
def cli_broker(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBCTL_REDIS_URL", redis_url)
    return redis_url


@pytest.mark.services
def test_schedule_verbs(cli_broker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = toy_spec(tmp_path, 4)
    add = ["schedule", "add", "nightly", "--cron", "0 2 * * *", "--tz", "Europe/Berlin", "--", "submit", "in.parquet"]
    assert jobctl([*add, "--model", spec.model, "--output", "out/{datetime}", "--shard-rows", "3"]) == 0
    assert "nightly: next at" in capsys.readouterr().err
    assert jobctl(["schedule", "list", "-o", "json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["cron"], listed["tz"], listed["last_job"]) == ("0 2 * * *", "Europe/Berlin", None)
    assert listed["output"] == str(tmp_path / "out" / "{datetime}")
    assert datetime.fromisoformat(listed["next"]) > datetime.now(UTC)
    assert jobctl(["schedule", "run-now", "nightly"]) == 0
    job_id = capsys.readouterr().out.strip()
    assert jobctl(["status", job_id, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_shards"] == 2
    assert jobctl(["schedule", "list"]) == 0
    assert job_id in capsys.readouterr().out
    assert jobctl(["schedule", "remove", "nightly"]) == 0
    capsys.readouterr()
    for verb in ("remove", "run-now"):
        assert jobctl(["schedule", verb, "nightly"]) == 3
        assert capsys.readouterr().err == "jobctl: no schedule nightly; see jobctl schedule list\n"


@pytest.mark.parametrize(
    ("options", "arguments", "word"),
    [
        (["--cron", "never"], ["submit", "a", "--model", "m", "--output", "{date}"], "--cron"),
        (["--cron", "@daily", "--tz", "Mars"], ["submit", "a", "--model", "m", "--output", "{date}"], "--tz"),
        (["--cron", "@daily"], ["submit", "a", "--model", "m", "--output", "out"], "{date}"),
        (["--cron", "@daily"], ["submit", "a-{day}", "--model", "m", "--output", "{date}"], "{day}"),
        (["--cron", "@daily"], ["submit", "a", "--model", "m", "--output", "{date}", "--top-p", "9"], "--top-p"),
        (["--cron", "@daily"], ["submit", "a", "--modle", "m"], "--modle"),
        (["--cron", "@daily"], ["submit", "a", "--model", "m", "--new", "--output", "{date}"], "--new"),
        (["--cron", "@daily"], ["run", "a", "--model", "m"], "'run'"),
        (["--cron", "@daily"], [], "submit"),
        ([], ["submit", "a", "--model", "m", "--output", "{date}"], "--cron"),
    ],
)
def test_a_schedule_is_checked_when_it_is_added(
    options: list[str],
    arguments: list[str],
    word: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBCTL_REDIS_URL", "redis://127.0.0.1:1")
    assert jobctl(["schedule", "add", "x", *options, "--", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and word in shown.err
