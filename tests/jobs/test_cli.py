"""What jobctl says to bad input: the exit code, exactly one line on stderr, and nothing half-written."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.cli import jobctl
from jobs.cli.spec import default_output
from jobs.control.store import Store
from jobs.settings import Settings
from tests.jobs.cli import files_under, only_line
from tests.toy import make_model, toy_spec, write_input

ROOT = Path(__file__).parents[2]


def no_such_file(work: Path) -> str:
    return "absent.parquet"


def not_parquet(work: Path) -> str:
    (work / "in.parquet").write_text("prompt\nhello, this is a text file\n")
    return "in.parquet"


def zero_bytes(work: Path) -> str:
    (work / "in.parquet").touch()
    return "in.parquet"


def no_prompt_column(work: Path) -> str:
    pq.write_table(pa.table({"question": ["a"], "answer": ["b"]}), work / "in.parquet")
    return "in.parquet"


def both_kinds(work: Path) -> str:
    messages = [[{"role": "user", "content": "hi"}]]
    pq.write_table(pa.table({"prompt": ["a"], "messages": messages}), work / "in.parquet")
    return "in.parquet"


BAD_INPUTS: list[tuple[Callable[[Path], str], tuple[str, ...]]] = [
    (no_such_file, ("absent.parquet",)),
    (not_parquet, ("in.parquet",)),
    (zero_bytes, ("in.parquet",)),
    (no_prompt_column, ("question", "answer", "--prompt-column")),
    (both_kinds, ("prompt", "messages", "--prompt-column")),
]


@pytest.mark.services
@pytest.mark.parametrize("verb", ["submit", "run"])
@pytest.mark.parametrize(("make", "words"), BAD_INPUTS, ids=[make.__name__ for make, _ in BAD_INPUTS])
def test_a_bad_input_file(
    verb: str,
    make: Callable[[Path], str],
    words: tuple[str, ...],
    work: Path,
    broker: str,
    store: Store,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, model = make(work), make_model(work / "model")
    before = files_under(work)
    assert jobctl([verb, source, "--model", model]) == 2
    line = only_line(capsys)
    assert [word for word in words if word not in line] == []
    assert files_under(work) == before
    assert store.jobs() == []


@pytest.mark.services
def test_a_model_folder_without_weights(work: Path, broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = Path(make_model(work / "model"))
    (model / "model.safetensors").unlink()
    source = write_input(work / "in.parquet", ["a"])
    before = files_under(work)
    assert jobctl(["submit", source, "--model", str(model)]) == 2
    assert "weights" in only_line(capsys)
    assert files_under(work) == before


@pytest.mark.services
def test_an_output_directory_that_is_not_empty(work: Path, broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec = toy_spec(work, 2)
    (work / "out").mkdir()
    (work / "out" / "mine.txt").write_text("keep me")
    before = files_under(work)
    assert jobctl(["submit", spec.input, "--model", spec.model, "--output", spec.output]) == 2
    assert "not empty" in only_line(capsys)
    assert files_under(work) == before


@pytest.mark.services
def test_an_output_directory_of_another_job(work: Path, broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec = toy_spec(work, 2)
    assert jobctl(["submit", "-q", spec.input, "--model", spec.model, "--output", spec.output]) == 0
    assert capsys.readouterr().err == ""
    before = files_under(work)
    assert jobctl(["submit", spec.input, "--model", spec.model, "--output", spec.output, "--seed", "7"]) == 2
    line = only_line(capsys)
    assert "--seed is 0 there and 7 here" in line and "--output" in line
    assert files_under(work) == before


def test_unknown_option_in_a_spec_file(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "spec.json").write_text(json.dumps({"input": "in.parquet", "model": "m", "modle": "x"}))
    assert jobctl(["submit", "--spec", "spec.json"]) == 2
    line = only_line(capsys)
    assert "spec.json" in line and "'modle'" in line


@pytest.mark.parametrize("text", ["", "[1]", "{", "prompt"])
def test_a_spec_file_that_is_not_an_object(text: str, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "spec.json").write_text(text)
    assert jobctl(["submit", "--spec", "spec.json"]) == 2
    assert "spec.json" in only_line(capsys)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["submit"], "no input"),
        (["submit", "in.parquet"], "--model"),
        (["submit", "in.parquet", "--model", "m", "--top-p", "1.5"], "--top-p"),
        (["submit", "in.parquet", "--model", "m", "--top-p", "0"], "--top-p"),
        (["submit", "in.parquet", "--model", "m", "--max-new-tokens", "0"], "--max-new-tokens"),
        (["submit", "in.parquet", "--model", "m", "--seed", "-1"], "--seed"),
        (["submit", "in.parquet", "--model", "m", "--seed", "one"], "--seed"),
        (["submit", "in.parquet", "--model", "m", "--device", "tpu"], "--device"),
        (["submit", "a", "--model", "m", "--prompt-column", "p", "--messages-column", "q"], "exclude each other"),
        (["submit", "in.parquet", "--modle", "m"], "--model"),
        (["submit", "--spec", "absent.json"], "absent.json"),
        (["run", "in.parquet", "--model", "m", "--workers", "-1"], "--workers"),
        (["nonsense"], "nonsense"),
        (["status"], "JOB"),
        (["list", "-o", "yaml"], "yaml"),
        (["wait", "job", "--timeout", "-1"], "--timeout"),
        (["results", "job", "--head", "-1"], "--head"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage(arguments: list[str], words: str, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert jobctl(arguments) == 2
    assert words in only_line(capsys)
    assert files_under(work) == {}


@pytest.mark.parametrize("verb", [["submit", "a.parquet", "--model", "m"], ["list"], ["status", "job-1"], ["beat"]])
def test_no_broker_is_named_without_its_password(
    verb: list[str], work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOBCTL_REDIS_URL", "redis://me:secret@127.0.0.1:1/0")
    assert jobctl(verb) == 7
    line = only_line(capsys)
    assert "127.0.0.1:1" in line and "secret" not in line
    assert files_under(work) == {}


def test_a_redis_url_that_is_none(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOBCTL_REDIS_URL", "localhost:6379")
    assert jobctl(["list"]) == 2
    assert "JOBCTL_REDIS_URL" in only_line(capsys)


def test_a_worker_needs_a_named_broker(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert jobctl(["worker"]) == 7
    assert "JOBCTL_REDIS_URL" in only_line(capsys)


@pytest.mark.services
@pytest.mark.parametrize("verb", ["status", "wait", "results", "cancel"])
def test_an_unknown_job(verb: str, broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert jobctl([verb, "job-0123"]) == 3
    assert "job-0123" in only_line(capsys)


@pytest.mark.services
@pytest.mark.parametrize("verb", ["status", "wait", "results", "cancel"])
def test_a_directory_without_a_job(verb: str, work: Path, broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert jobctl([verb, str(work)]) == 3
    assert str(work) in only_line(capsys)


def test_an_error_that_nobody_foresaw_is_one_line_and_with_debug_a_traceback(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> Settings:
        raise ArithmeticError("nobody\nforesaw this")

    monkeypatch.setattr(Settings, "from_environ", fail)
    assert jobctl(["list"]) == 1
    assert "nobody foresaw this" in only_line(capsys)
    assert jobctl(["--debug", "list"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_stops_reading_is_told_nothing(work: Path) -> None:
    command = [sys.executable, "-m", "jobs.cli", "--help"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 1
    process.stderr.close()


@pytest.mark.services
def test_submit_prints_the_id_on_stdout_and_the_rest_on_stderr(
    work: Path, broker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = toy_spec(work, 20)
    (work / "spec.json").write_text(json.dumps({"model": spec.model, "shard_rows": 8, "output": "elsewhere"}))
    assert jobctl(["submit", spec.input, "--spec", "spec.json", "--output", "out"]) == 0
    first = capsys.readouterr()
    assert first.out.startswith("job-") and first.out.count("\n") == 1
    assert "20 rows in 3 shards" in first.err and "jobctl up" in first.err
    assert jobctl(["submit", "-q", spec.input, "--spec", "spec.json", "--output", "out"]) == 0
    assert capsys.readouterr() == (first.out, "")
    assert not (work / "elsewhere").exists()


@pytest.mark.services
def test_new_makes_another_job(work: Path, broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec = toy_spec(work, 2)
    common = ["submit", "-q", spec.input, "--model", spec.model, "--output"]
    assert jobctl([*common, "one"]) == jobctl([*common, "two", "--new"]) == 0
    ids = capsys.readouterr().out.split()
    assert len(set(ids)) == 2
    # The same without --new goes on with it.
    assert jobctl([*common, "two"]) == 0
    assert capsys.readouterr().out.strip() == ids[1]
    assert jobctl([*common, "one", "--new"]) == 2
    assert "--output" in only_line(capsys)


@pytest.mark.services
def test_listings_as_json(work: Path, broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert jobctl(["list"]) == 0
    assert capsys.readouterr() == ("", "")
    assert jobctl(["list", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    spec = toy_spec(work, 2)
    assert jobctl(["submit", "-q", spec.input, "--model", spec.model, "--output", "out"]) == 0
    job_id = capsys.readouterr().out.strip()
    assert jobctl(["list", "-o", "json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    for name in (job_id, "out"):
        assert jobctl(["status", name, "-o", "json"]) == 0
        status = json.loads(capsys.readouterr().out)
        assert (status["job_id"], status["state"], status["num_rows"]) == (job_id, "queued", 2)
        assert {key: listed[key] for key in status} == status
    assert jobctl(["results", job_id, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert jobctl(["results", "out", "-o", "path"]) == 0
    assert capsys.readouterr().out == f"{work / 'out'}\n"


@pytest.mark.services
def test_a_job_whose_directory_is_gone_is_listed_as_lost(
    work: Path, broker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    spec = toy_spec(work, 2)
    assert jobctl(["submit", "-q", spec.input, "--model", spec.model, "--output", "out"]) == 0
    job_id = capsys.readouterr().out.strip()
    shutil.rmtree(work / "out")
    assert jobctl(["list"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == [job_id, "lost"]
    assert jobctl(["status", job_id]) == 3
    assert "out" in only_line(capsys)


@pytest.mark.services
def test_cancel_then_wait_and_submit_again(work: Path, broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec = toy_spec(work, 2)
    submit = ["submit", "-q", spec.input, "--model", spec.model, "--output", "out"]
    assert jobctl(submit) == 0
    job_id = capsys.readouterr().out.strip()
    assert jobctl(["wait", job_id, "--timeout", "0.1"]) == 6
    assert "has not ended" in capsys.readouterr().err.splitlines()[-1]
    assert jobctl(["cancel", job_id]) == 0
    assert only_line(capsys) == f"jobctl: {job_id} is cancelled"
    assert jobctl(["wait", job_id]) == 5
    assert "cancelled" in capsys.readouterr().out
    assert jobctl(submit) == 0
    assert jobctl(["status", job_id, "-o", "json"]) == 0
    assert '"queued"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("prompts.parquet", "prompts-completions"),
        ("/data/a.b.parquet", "a.b-completions"),
        ("data/", "data-completions"),
        ("data/*.parquet", "data-completions"),
        ("data/day=01/part-*.parquet", "data-completions"),
        ("s3://bucket/x.parquet", "x-completions"),
        ("*.parquet", "prompts-completions"),
        ("..", "prompts-completions"),
        ("daily/{date}.parquet", "{date}-completions"),
    ],
)
def test_the_default_output_is_named_after_the_input(source: str, output: str) -> None:
    assert default_output(source) == output


def test_a_path_that_is_not_utf8_is_refused_by_every_verb(
    work: Path, broker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["submit", "caf\udce9.parquet", "--model", "m"], ["status", "\udcff"], ["results", "\udcff"]):
        assert jobctl(arguments) == 2
        assert "not UTF-8" in only_line(capsys)


@pytest.mark.parametrize("output", ["a" * 300, "dangling"])
def test_an_output_that_cannot_be_is_refused(
    work: Path, broker: str, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    (work / "dangling").symlink_to("nowhere")
    spec = toy_spec(work, 1)
    assert jobctl(["submit", spec.input, "--model", spec.model, "--output", output]) == 2
    assert "cannot use --output" in only_line(capsys)


def test_a_spec_file_nested_beyond_reason_is_not_json(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "deep.json").write_text("[" * 200_000)
    assert jobctl(["submit", "--spec", "deep.json"]) == 2
    assert "is not JSON" in only_line(capsys)


def test_a_broker_url_with_a_wrong_port_names_the_variable(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOBCTL_REDIS_URL", "redis://127.0.0.1:notaport")
    assert jobctl(["list"]) == 2
    assert "JOBCTL_REDIS_URL: its port is not a number" in only_line(capsys)


def test_status_says_when_nobody_works_on_a_job(work: Path, broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec = toy_spec(work, 1)
    assert jobctl(["submit", "-q", spec.input, "--model", spec.model, "--output", spec.output]) == 0
    assert jobctl(["status", spec.output]) == 0
    assert "no worker is running; start one: jobctl up" in capsys.readouterr().out
