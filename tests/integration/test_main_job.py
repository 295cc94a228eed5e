"""The main job on the real engine: real model, real server, real workers; and what must not change its tokens."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.demo import PROMPTS, demo_model
from tests.engine.tiny_folder import make_folder
from tests.integration.conftest import wait_until
from tests.integration.terminal import Terminal

pytestmark = pytest.mark.services
DRAFTING = ["--draft-lengths", "3"]  # in every round, whether or not it pays
PHRASES = ["the cat sat on the mat. ", "one two three one two three ", "a list: a, b, a, b, a, b. ", "x"]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path / "data")
    yield opened
    opened.close()


def rows_of(output: Path) -> list[dict[str, object]]:
    return pa.concat_tables([pq.read_table(part) for part in sorted(output.glob("part-*.parquet"))]).to_pylist()


@pytest.mark.smollm
def test_the_demo_model_answers_every_prompt_once_in_order(terminal: Terminal, tmp_path: Path) -> None:
    prompts = pq.read_table(PROMPTS).take([0, 2, 20, 32, 56])
    pq.write_table(prompts, tmp_path / "in.parquet")
    output = tmp_path / "out"
    options = ["--max-new-tokens", "12", "--batch-size", "4", "--shard-rows", "3", "--save-token-ids"]
    model = ["--model", str(demo_model()), "--output", str(output)]
    done = terminal.run("run", str(tmp_path / "in.parquet"), *model, *options, seconds=240)
    assert "5 ok, 0 failed, of 5" in done.out and (output / "_SUCCESS").exists()
    rows = rows_of(output)
    assert [row["row_index"] for row in rows] == list(range(5))
    assert [row["id"] for row in rows] == prompts["id"].to_pylist()
    for row in rows:
        assert row["completion"] and row["finish_reason"] in ("stop", "length")
        assert sum(row["acceptance_histogram"]) == row["num_spec_steps"]
        from_target = 1 + row["num_target_steps"] - row["num_cut_target_tokens"]
        assert row["completion_tokens"] == from_target + row["num_accepted_draft_tokens"]
        assert len(row["completion_token_ids"]) == row["completion_tokens"]


def test_sampled_tokens_depend_on_seed_and_row_alone(terminal: Terminal, tmp_path: Path) -> None:
    model = make_folder(tmp_path / "model", max_position_embeddings=512)
    prompts = [phrase * (1 + i % 3) for i in range(4) for phrase in PHRASES]
    pq.write_table(pa.table({"prompt": prompts}), tmp_path / "in.parquet")
    fixed = [str(tmp_path / "in.parquet"), "--model", str(model), "--max-new-tokens", "40", "--save-token-ids"]
    fixed += ["--temperature", "0.3", "--top-k", "30", "--top-p", "0.95", "--seed", "7"]
    tokens = {
        "plain": run_variant(terminal, tmp_path / "plain", *fixed, "--draft", "none", "--shard-rows", "16"),
        "drafted": run_variant(
            terminal, tmp_path / "drafted", *fixed, "--batch-size", "3", "--shard-rows", "7", *DRAFTING
        ),
    }
    with two_workers(terminal):
        options = [*fixed, *DRAFTING, "--batch-size", "8", "--shard-rows", "2", "--workers", "0"]
        tokens["shared"] = run_variant(terminal, tmp_path / "shared", *options)
    manifest = json.loads((tmp_path / "shared" / "_manifest.json").read_text())
    assert len({receipt["worker"] for receipt in manifest["receipts"]}) == 2
    assert tokens["plain"] == tokens["drafted"] == tokens["shared"]


def test_every_draft_and_both_engines_write_the_same_rows(terminal: Terminal, tmp_path: Path) -> None:
    model = make_folder(tmp_path / "model", max_position_embeddings=256)
    draft = make_folder(tmp_path / "draft", max_position_embeddings=128, num_hidden_layers=1)
    params = [
        {},
        {"n": 3, "temperature": 0.8},
        {"stop": ["e", "at"], "min_new_tokens": 2},
        {"repetition_penalty": 1.3, "bad_words": ["th"]},
        {"stop_token_ids": [40], "ignore_eos": True, "min_p": 0.1, "temperature": 1.0},
        {"n": 0},
    ]
    table = {"prompt": [PHRASES[i % 4] for i in range(12)], "params": [json.dumps(params[i % 6]) for i in range(12)]}
    pq.write_table(pa.table(table), tmp_path / "in.parquet")
    fixed = [str(tmp_path / "in.parquet"), "--model", str(model), "--max-new-tokens", "24", "--save-token-ids"]
    fixed += ["--shard-rows", "5", "--batch-size", "4", "--workers", "0"]
    variants = {
        "plain": ["--draft", "none"],
        "suffix": ["--draft", "suffix", *DRAFTING],
        "model": ["--draft", "model", "--draft-model", str(draft), *DRAFTING],
        "auto": ["--draft", "auto", "--exit-layer", "1"],
        "generate": ["--engine", "generate"],
        "fixed": ["--deterministic", "--dtype", "float32", "--kv-length", "200", "--num-threads", "1"],
    }
    with two_workers(terminal):
        tables = {
            name: written_by(terminal, tmp_path / f"{name}-out", *fixed, *options) for name, options in variants.items()
        }
    plain = tables["plain"]
    assert [(row["row_index"], row["sample_index"]) for row in plain] == [
        (i, sample) for i in range(12) for sample in range(3 if i % 6 == 1 else 1)
    ]
    assert [row["row_index"] for row in plain if row["status"] == "error"] == [5, 11]
    for name, rows in tables.items():
        for row, expected in zip(rows, plain, strict=True):
            same = (
                "row_index",
                "sample_index",
                "status",
                "completion",
                "completion_token_ids",
                "finish_reason",
                "seed",
            )
            assert {key: row[key] for key in same} == {key: expected[key] for key in same}, name
    for name in ("suffix", "model"):
        assert any(row["num_accepted_draft_tokens"] for row in tables[name])
    status = json.loads(terminal.run("status", str(tmp_path / "suffix-out"), "-o", "json").out)
    assert set(status["speculation"]["rounds_by_k"]) == {"suffix"}


def written_by(terminal: Terminal, output: Path, *arguments: str) -> list[dict[str, object]]:
    """The rows of a job that ends with row errors."""
    terminal.run("run", *arguments, "--output", str(output), seconds=120, code=4)
    return rows_of(output)


def run_variant(terminal: Terminal, output: Path, *arguments: str) -> list[object]:
    """The rows' tokens; drafts must have been accepted where there were any."""
    terminal.run("run", *arguments, "--output", str(output), seconds=120)
    rows = rows_of(output)
    assert [row["row_index"] for row in rows] == list(range(16))
    assert any(row["num_accepted_draft_tokens"] for row in rows) == ("none" not in arguments)
    return [row["completion_token_ids"] for row in rows]


@contextmanager
def two_workers(terminal: Terminal) -> Iterator[None]:
    """Two workers that wait for messages, so that each takes a part of what comes."""
    for log in (terminal.data_dir / "logs").glob("worker-*"):
        log.unlink()
    up = terminal.start("up", "--device", "cpu", "--workers", "2")
    logs = terminal.data_dir / "logs"
    wait_until(lambda: sum("ready." in log.read_text() for log in logs.glob("worker-*")) == 2, 60, "two workers ready")
    yield
    up.process.send_signal(signal.SIGTERM)
    assert up.end() == 143
