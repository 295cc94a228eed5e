"""Options of a job: what is wrong is named as it is typed, and the command line goes before the spec file."""

import json
from pathlib import Path

import pytest

from jobs.cli import jobctl
from schemas.job import JobSpec
from tests.jobs.cli import files_under, only_line


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--draft", "magic"], "Invalid value for '--draft': 'magic' is not one of"),
        (["--draft", "model"], "--draft model needs --draft-model, the model that drafts"),
        (["--draft-model", "d"], "--draft-model is not used by draft ngram; give draft model or auto"),
        (["--draft", "early-exit"], "--draft early-exit needs --exit-layer"),
        (["--draft-lengths", "2,40"], "--draft-lengths: 40: Input should be less than or equal to 32"),
        (["--draft-lengths", "two"], "'--draft-lengths': 'two' is not a list of whole numbers with commas between"),
        (["--draft-lengths", ","], "--draft-lengths: List should have at least 1 item"),
        (["--ngram-min", "5"], "--ngram-min 5 is above --ngram-max 3"),
        (["--engine", "generate", "--draft", "suffix"], "--engine generate takes no draft suffix"),
        (["--deterministic"], "--deterministic needs --kv-length"),
        (["--deterministic", "--kv-length", "64"], "--deterministic needs --num-threads"),
        (
            ["--deterministic", "--kv-length", "64", "--num-threads", "1"],
            "--deterministic needs a dtype other than auto",
        ),
        (["--min-p", "2"], "--min-p: Input should be less than or equal to 1"),
        (["--min-new-tokens", "9", "--max-new-tokens", "8"], "--min-new-tokens 9 is above --max-new-tokens 8"),
        (["--logit-bias", "5"], "'--logit-bias': '5' is not ID=BIAS"),
        (["--logit-bias", "five=1"], "--logit-bias: 'five': Input should be a valid integer"),
        (["--logit-bias", "5=much"], "--logit-bias: 'much': Input should be a valid number"),
        (["--logit-bias", "5=nan"], "--logit-bias: 'nan': Input should be a finite number"),
        (["--stop", ""], "--stop: '': String should have at least 1 character"),
        (["--stop-token-ids", "1,-2"], "--stop-token-ids: -2: Input should be greater than or equal to 0"),
        (["--n", "0"], "--n: Input should be greater than or equal to 1"),
        (["--num-draft-tokens", "4"], "No such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_option_is_named_as_it_is_typed(
    options: list[str], says: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert jobctl(["submit", "in.parquet", "--model", "m", *options]) == 2
    assert says in only_line(capsys)
    assert files_under(work) == {}


def test_a_wrong_key_of_a_spec_file_is_named_as_an_option(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"input": "in.parquet", "model": "m", "stop_token_ids": [1, "x"]}
    (work / "spec.json").write_text(json.dumps(spec))
    assert jobctl(["submit", "--spec", "spec.json"]) == 2
    assert "--stop-token-ids: 'x': Input should be a valid integer" in only_line(capsys)


SPEC_FILE = {"stop": ["a"], "bad_words": ["b"], "logit_bias": {"1": 0.5}, "stop_token_ids": [3], "ignore_eos": True}


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ([], {}),
        (["--stop", "c", "--stop", "d,e\n"], {"stop": ("c", "d,e\n")}),
        (["--bad-words", "c d"], {"bad_words": ("c d",)}),
        (["--logit-bias", "7=-2", "--logit-bias", "8=1e1"], {"logit_bias": {7: -2.0, 8: 10.0}}),
        (["--stop-token-ids", "1, 2"], {"stop_token_ids": (1, 2)}),
        (["--no-ignore-eos"], {"ignore_eos": False}),
        (["--draft-lengths", "4,0"], {"draft_lengths": (0, 4)}),
        (["--engine", "generate"], {"engine": "generate", "draft": "none"}),
        (["--n", "3", "--min-p", ".1"], {"n": 3, "min_p": 0.1}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_command_line_goes_before_the_spec_file(
    options: list[str], changes: dict[str, object], work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "spec.json").write_text(json.dumps({"model": "m", **SPEC_FILE}))
    specs: list[JobSpec] = []
    monkeypatch.setattr("jobs.cli.run.run_job", lambda spec, *rest: specs.append(spec) or 0)
    assert jobctl(["run", "in.parquet", "--spec", "spec.json", *options]) == 0
    common = JobSpec.from_mapping({"input": "in.parquet", "output": "in-completions", "model": "m", **SPEC_FILE})
    assert specs == [common.model_copy(update=changes)]
