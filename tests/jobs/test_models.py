"""A job's model is pinned at submit: by the bytes that decide its tokens, or by its hub commit."""

import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import HFValidationError

from jobs.plan.models import has_chat_template, is_local_model, locate_model, resolve_model
from schemas.errors import InvalidJob

COMMIT = "a" * 40


def safetensors(header: dict[str, Any], num_bytes: int = 8) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(num_bytes)


def make_folder(folder: Path) -> Path:
    (folder / "chat_templates").mkdir(parents=True)
    files: dict[str, bytes] = {
        "config.json": b'{"model_type": "llama"}',
        "generation_config.json": b'{"eos_token_id": 2}',
        "tokenizer.json": b'{"version": "1.0"}',
        "tokenizer_config.json": b"{}",
        "vocab.json": b"{}",
        "merges.txt": b"a b",
        "tokenizer.model": b"pieces",
        "chat_template.jinja": b"{{ messages }}",
        "chat_templates/tools.jinja": b"{{ tools }}",
        "model.safetensors.index.json": b'{"weight_map": {}}',
        "model-00001-of-00002.safetensors": safetensors({"a": {"data_offsets": [0, 8]}}),
        "model-00002-of-00002.safetensors": safetensors({"b": {"data_offsets": [0, 8]}}),
        "README.md": b"read me",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "model")


DECIDING = sorted(
    str(path)
    for path in (
        *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json"),
        *("merges.txt", "tokenizer.model", "chat_template.jinja", "chat_templates/tools.jinja"),
        *("model.safetensors.index.json", "model-00001-of-00002.safetensors"),
    )
)


def test_the_revision_of_a_folder_is_the_same_wherever_it_lies(folder: Path, tmp_path: Path) -> None:
    revision = resolve_model(str(folder))
    assert revision.startswith("sha256:") and len(revision) == 7 + 64
    assert resolve_model(str(make_folder(tmp_path / "elsewhere"))) == revision
    assert resolve_model(str(folder), revision) == revision


@pytest.mark.parametrize("name", DECIDING)
def test_a_change_of_any_file_that_decides_tokens_is_seen(folder: Path, name: str) -> None:
    revision = resolve_model(str(folder))
    path = folder / name
    path.write_bytes(path.read_bytes() + b" ")
    assert resolve_model(str(folder)) != revision
    with pytest.raises(InvalidJob, match=f"its files are at sha256:.*, not at revision {revision}; submit a new job"):
        resolve_model(str(folder), revision)


def test_a_file_that_moves_between_names_is_seen(folder: Path) -> None:
    revision = resolve_model(str(folder))
    (folder / "vocab.json").rename(folder / "vocab.txt")
    assert resolve_model(str(folder)) != revision


def test_files_that_decide_nothing_do_not_count(folder: Path) -> None:
    revision = resolve_model(str(folder))
    (folder / "README.md").write_text("changed")
    (folder / "trainer_state.json").write_text("{}")
    assert resolve_model(str(folder)) == revision


def test_large_weights_are_not_read(folder: Path) -> None:
    weights = folder / "model-00002-of-00002.safetensors"
    with weights.open("r+b") as file:
        file.truncate(2**40)  # a sparse file, which takes hours to read
    assert resolve_model(str(folder)).startswith("sha256:")


def test_a_gguf_file_is_pinned_by_its_header_and_size(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    revision = resolve_model(str(path))
    path.write_bytes(b"GGUF" + bytes(101))
    longer = resolve_model(str(path))
    path.write_bytes(b"GGUF" + bytes(99) + b"\1")
    assert len({revision, longer, resolve_model(str(path))}) == 3


def remove(*patterns: str) -> Any:
    def change(folder: Path) -> None:
        for pattern in patterns:
            for path in folder.glob(pattern):
                path.unlink()

    return change


def only_pickles(folder: Path) -> None:
    remove("*.safetensors*")(folder)
    (folder / "pytorch_model.bin").write_bytes(b"pickle")


def only_gguf(folder: Path) -> None:
    remove("*.safetensors*")(folder)
    (folder / "m-Q4.gguf").write_bytes(b"GGUF")


def lfs_pointer(folder: Path) -> None:
    (folder / "model-00001-of-00002.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove("config.json"), "no config.json in it; name the folder that holds the model's files"),
        (remove("*.safetensors"), "no .safetensors weights in it; download the model again"),
        (only_pickles, "its weights are pickles, which can run code; convert them to safetensors, or give --allow"),
        (only_gguf, "it holds GGUF files; name one of them, such as m-Q4.gguf"),
        (lfs_pointer, "not a safetensors file (a Git LFS pointer?); download it again"),
    ],
)
def test_folders_that_cannot_be_a_model_are_refused(folder: Path, change: Any, message: str) -> None:
    change(folder)
    with pytest.raises(InvalidJob) as caught:
        resolve_model(str(folder))
    assert str(folder) in str(caught.value) and message in str(caught.value)


def test_a_missing_path_and_a_file_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match="no such folder or file"):
        resolve_model(str(tmp_path / "nothing"))
    (tmp_path / "notes.gguf").write_text("notes")
    with pytest.raises(InvalidJob, match="not a GGUF file"):
        resolve_model(str(tmp_path / "notes.gguf"))


@pytest.mark.parametrize(
    ("model", "is_local"),
    [
        ("owner/name", False),
        ("gpt2", False),
        ("./m", True),
        ("/m", True),
        ("~/m", True),
        ("a/b/c", True),
        ("m.gguf", True),
    ],
)
def test_paths_and_hub_ids_are_told_apart(
    model: str, is_local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_local_model(model) is is_local


def test_a_local_model_is_located_and_a_hub_id_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert locate_model("model") == str(folder)
    assert locate_model("owner/name") == "owner/name"


def test_chat_templates_are_found_where_they_can_be(folder: Path) -> None:
    assert has_chat_template(str(folder)) is True
    remove("chat_template.jinja", "chat_templates/*")(folder)
    (folder / "chat_templates").rmdir()
    assert has_chat_template(str(folder)) is False
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    assert has_chat_template(str(folder)) is True
    assert has_chat_template("owner/name") is None


class Hub:
    """Stands in for huggingface_hub.HfApi: answers or raises what it is told, and remembers what was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str | None]] = []
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: self)

    def model_info(self, model: str, revision: str | None, timeout: float) -> Any:
        self.asked.append((model, revision))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def info(*names: str) -> SimpleNamespace:
    return SimpleNamespace(sha=COMMIT, siblings=[SimpleNamespace(rfilename=name) for name in names])


def refusal(kind: str) -> Exception:
    """One of the hub client's errors, whose constructors want an HTTP response and differ between its versions."""
    error_class: type[Exception] = getattr(huggingface_hub.errors, kind)
    return error_class.__new__(error_class)


def test_a_hub_model_is_pinned_by_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(monkeypatch, info("config.json", "model.safetensors"))
    assert resolve_model("owner/name", "main") == COMMIT
    assert hub.asked == [("owner/name", "main")]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (info("pytorch_model.bin"), "its weights are pickles"),
        (info("README.md"), "no .safetensors weights in it"),
        (info("m-Q4.gguf"), "it holds GGUF files"),
        (refusal("RepositoryNotFoundError"), "no such folder here, and no such model on the hub"),
        (refusal("RevisionNotFoundError"), "the hub has no revision main of it"),
        (refusal("GatedRepoError"), "gated; accept its terms on the hub"),
        (HFValidationError("bad"), "neither a folder here nor a hub id"),
    ],
)
def test_hub_models_that_cannot_be_used_are_refused(monkeypatch: pytest.MonkeyPatch, answer: Any, message: str) -> None:
    Hub(monkeypatch, answer)
    with pytest.raises(InvalidJob, match=f"model owner/name: {message}"):
        resolve_model("owner/name", "main")


def test_without_the_hub_the_cached_commit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    Hub(monkeypatch, ConnectionError("no route"))
    cached = f"/cache/models--owner--name/snapshots/{COMMIT}/config.json"
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda model, name, revision: cached)
    assert resolve_model("owner/name") == COMMIT


def test_without_hub_and_cache_a_local_folder_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    Hub(monkeypatch, ConnectionError("no route"))
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda model, name, revision: None)
    with pytest.raises(InvalidJob, match=r"the hub does not answer \(ConnectionError\).*a local folder works"):
        resolve_model("owner/name")
