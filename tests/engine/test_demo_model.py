"""The demo model: its folder is whole and says the same to both transformers lanes."""

import importlib.util
from pathlib import Path

import pytest

from schemas.generation import InputRow
from schemas.job import JobSpec
from schemas.plan import Plan
from workers.engine.session import load_session

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".models" / "SmolLM2-135M-Instruct"
needs_model = pytest.mark.skipif(not FOLDER.is_dir(), reason="run `make model` first")


@pytest.fixture(scope="module")
def demo_model():
    spec = importlib.util.spec_from_file_location("demo_model", ROOT / "examples" / "demo_model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_folder_that_is_there_is_left_alone(demo_model, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo_model, "fetch_gguf", None)
    (tmp_path / "config.json").write_text("{}")
    assert demo_model.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_failed_build_leaves_nothing_behind(demo_model, tmp_path, monkeypatch):
    def fetch(scratch):
        (scratch / "half").write_text("half a file")
        raise OSError("no network")

    monkeypatch.setattr(demo_model, "fetch_gguf", fetch)
    with pytest.raises(OSError, match="no network"):
        demo_model.main([str(tmp_path / "model")])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_other_things_is_not_overwritten(demo_model, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty"):
        demo_model.main([str(tmp_path)])


def test_usage_is_told(demo_model, capsys):
    assert demo_model.main([]) == 2
    assert capsys.readouterr().err.startswith("usage:")


@pytest.mark.smollm
@needs_model
def test_it_chats_ends_at_eos_and_generates_the_same_tokens_on_both_lanes():
    spec = JobSpec(input="in", output="out", model=str(FOLDER), device="cpu", max_new_tokens=24)
    kinds = {"prompt_kind": "messages", "prompt_column": "messages"}
    plan = Plan(job_id="j", spec=spec, num_rows=1, files=(), shards=(), created_at="2030-01-31T02:00:00Z", **kinds)
    session = load_session(spec, threads=1)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    (request,) = session.encode(InputRow(0, messages=messages), plan)
    (completion,) = session.generate([request])
    assert session.target.eos_token_ids == {0, 2}
    assert request.prompt_token_ids[:6] == (1, 9690, 198, 2683, 359, 253)
    assert completion.token_ids == (504, 3575, 282, 4649, 314, 7042, 30, 2)
    assert completion.finish_reason == "stop"
    assert session.decode(completion.token_ids) == "The capital of France is Paris."
