"""The compose stack: its file's promises, and a job through its services."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from tests.engine.tiny_folder import make_folder
from tests.integration.compose import Stack, read_compose
from tests.integration.conftest import ROOT, wait_until

VARIABLES = {"REDIS_PASSWORD": "correct horse"}
SERVICES = read_compose({"REDIS_PASSWORD": "x"})["services"]


def test_the_stack_is_a_redis_a_worker_and_a_beat() -> None:
    assert list(SERVICES) == ["redis", "worker", "beat"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_not_root_not_published_and_comes_back(name: str) -> None:
    service = SERVICES[name]
    assert service["user"] in ("redis", "10001:10001")
    assert "ports" not in service and "network_mode" not in service and "privileged" not in service
    assert service["restart"] == "unless-stopped"
    assert service["init"] is True
    assert service["cap_drop"] == ["ALL"]
    assert {"test", "interval", "timeout", "retries", "start_period"} <= service["healthcheck"].keys()


def test_images_are_pinned() -> None:
    assert re.fullmatch(r"redis:\d+\.\d+\.\d+-\w+", SERVICES["redis"]["image"])
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^FROM python:3\.11\.\d+-slim-\w+$", dockerfile, re.MULTILINE)
    assert "--constraint constraints.txt" in dockerfile
    assert dockerfile.index("\nUSER 10001:10001") < dockerfile.index("\nCMD")


def test_every_variable_is_in_the_example_and_secrets_stay_out_of_the_image() -> None:
    wanted = set(re.findall(r"\$\{(\w+)", (ROOT / "compose.yaml").read_text()))
    example = (ROOT / ".env.example").read_text()
    assert wanted == set(re.findall(r"^(\w+)=", example, re.MULTILINE))
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*" and "!.env" not in ignored


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack(tmp_path, VARIABLES)
    yield made
    made.kill()


@pytest.mark.services
def test_a_job_and_a_schedule_go_through_the_stack(stack: Stack) -> None:
    make_folder(stack.volume("models") / "tiny")
    prompts = [f"say {number} again and again" for number in range(6)]
    pq.write_table(pa.table({"prompt": prompts}), stack.volume("data") / "prompts.parquet")
    stack.start()

    with redis.Redis(port=stack.port, password=VARIABLES["REDIS_PASSWORD"]) as client:
        wanted = {"appendonly": "yes", "maxmemory-policy": "noeviction"}
        assert {name: client.config_get(name)[name] for name in wanted} == wanted
    with redis.Redis(port=stack.port) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()

    options = ["/data/prompts.parquet", "--model", "/models/tiny", "--max-new-tokens", "8", "--shard-rows", "4"]
    job_id = stack.exec("worker", "jobctl", "submit", "-q", *options, "--output", "/data/out").strip()
    assert "6 ok, 0 failed, of 6" in stack.exec("worker", "jobctl", "wait", job_id, "--timeout", "120")
    table = pq.read_table(sorted((stack.volume("data") / "out").glob("part-*.parquet")))
    assert table["row_index"].to_pylist() == list(range(6))
    assert table["prompt"].to_pylist() == prompts
    assert table["status"].to_pylist() == ["ok"] * 6

    submit = ["submit", *options, "--output", "/data/scheduled/{datetime}"]
    stack.exec("beat", "jobctl", "schedule", "add", "often", "--cron", "* * * * * */5", "--", *submit)
    jobs = stack.volume("data") / "scheduled"
    wait_until(lambda: list(jobs.glob("*/_SUCCESS")), 60, "a scheduled job has finished")
    stack.exec("beat", "jobctl", "schedule", "remove", "often")
    listed = json.loads(stack.exec("beat", "jobctl", "list", "-o", "json"))
    assert {job["job_id"].split("-")[0] for job in listed} == {"job", "often"}

    assert stack.stop() == {"beat": 0, "worker": 0, "redis": 0}, stack.log("worker")
