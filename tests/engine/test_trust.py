"""What a model's files may do: nothing but be read, unless the job asks for more. Real pickles, real code."""

import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from jobs.plan.models import resolve_model
from schemas.errors import InvalidJob
from tests.engine.conftest import endings, make_engine, make_requests
from tests.engine.tiny_folder import make_folder
from workers.devices.cpu import CpuDevice
from workers.engine.models import load_plain, load_target
from workers.engine.trust import NO_TRUST, Trust

pytestmark = pytest.mark.engine

PICKLES, CODE = Trust(allow_pickle=True), Trust(remote_code=True)
OWN_CODE = """
import pathlib
from transformers import LlamaConfig, LlamaForCausalLM
pathlib.Path({mark!r}).touch()

class OwnConfig(LlamaConfig):
    model_type = "own_code"

class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path / "model")


@pytest.fixture
def mark(tmp_path):
    """Made by the model's code or pickle when it is run."""
    return tmp_path / "mark"


@pytest.fixture
def own_code(folder, mark, tmp_path, monkeypatch):
    """The folder's model, with its classes in a Python file beside it."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    (folder / "own.py").write_text(OWN_CODE.format(mark=str(mark)))
    change_config(folder, model_type="own_code", auto_map={"AutoConfig": "own.OwnConfig"} | MODEL_CLASS)
    return folder


MODEL_CLASS = {"AutoModelForCausalLM": "own.OwnModel"}


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def load(path, trust=NO_TRUST, loader=load_target):
    return loader(str(path), resolve_model(str(path), None, trust.allow_pickle), "auto", CpuDevice(), trust)


def to_pickle(folder, save=torch.save):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save(weights, folder / "pytorch_model.bin")


class Marking:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def tokens(target):
    return endings(list(make_engine(target).generate(make_requests(2))))


def test_pickled_weights_are_refused_and_with_allow_pickle_they_are_the_same_weights(folder):
    expected = tokens(load(folder))
    to_pickle(folder)
    with pytest.raises(InvalidJob, match="its weights are pickles, which can run code"):
        load(folder)
    assert tokens(load(folder, PICKLES)) == expected


@pytest.mark.parametrize("trust", [NO_TRUST, PICKLES, Trust(True, True)])
def test_a_pickle_that_would_run_something_never_does(folder, mark, trust):
    to_pickle(folder, lambda weights, path: path.write_bytes(pickle.dumps({**weights, "x": Marking(mark)})))
    with pytest.raises(InvalidJob) as caught:
        load(folder, trust)
    assert "\n" not in str(caught.value)
    assert not mark.exists()
    with open(folder / "pytorch_model.bin", "rb") as file:
        pickle.load(file)
    assert mark.exists()


@pytest.mark.parametrize("loader", [load_target, load_plain])
def test_a_models_code_is_not_run_and_its_job_is_told_how_to_ask(own_code, mark, loader):
    with pytest.raises(InvalidJob) as caught:
        load(own_code, loader=loader)
    assert str(caught.value) == (
        f"model {own_code} needs its own Python code: give --trust-remote-code, which the worker has to allow too, "
        "or choose another model"
    )
    assert not mark.exists()


@pytest.mark.parametrize("loader", [load_target, load_plain])
def test_a_models_code_is_run_where_the_job_trusts_it(own_code, mark, loader):
    loaded = load(own_code, CODE, loader)
    assert mark.exists()
    assert type(loaded.model).__name__ == "OwnModel"


def test_trusted_code_generates_as_the_family_that_it_is(folder, own_code, tmp_path):
    plain = make_folder(tmp_path / "plain")
    (own_code / "model.safetensors").write_bytes((plain / "model.safetensors").read_bytes())
    assert tokens(load(own_code, CODE)) == tokens(load(plain))


def test_code_beside_a_family_that_transformers_knows_is_not_run(folder, mark):
    (folder / "own.py").write_text(OWN_CODE.format(mark=str(mark)))
    change_config(folder, auto_map={"AutoConfig": "own.OwnConfig"} | MODEL_CLASS)
    assert type(load(folder).model).__name__ == "LlamaForCausalLM"
    assert not mark.exists()


def test_a_tokenizers_code_is_not_run(folder, mark):
    path = folder / "tokenizer_config.json"
    auto_map = {"auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]}, "tokenizer_class": "OwnTokenizer"}
    path.write_text(json.dumps(json.loads(path.read_text()) | auto_map))
    (folder / "own.py").write_text(OWN_CODE.format(mark=str(mark)))
    try:
        load(folder)
    except InvalidJob as refused:
        assert "\n" not in str(refused)
    assert not mark.exists()


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_of_another_repository_is_refused_even_where_it_is_trusted(own_code, mark, file):
    path = own_code / file
    auto_map = {"AutoConfig": "owner/other--own.OwnConfig", "AutoTokenizer": [None, "owner/other--own.T"]}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": auto_map}))
    with pytest.raises(InvalidJob, match="of another repository, which no revision pins"):
        load(own_code, CODE)
    assert not mark.exists()


def test_code_and_pickles_decide_the_revision(folder):
    revisions = [resolve_model(str(folder))]
    (folder / "own.py").write_text("a = 1")
    revisions.append(resolve_model(str(folder)))
    to_pickle(folder)
    revisions.append(resolve_model(str(folder), None, True))
    weights = torch.load(folder / "pytorch_model.bin")
    weights["model.norm.weight"][0] += 1
    torch.save(weights, folder / "pytorch_model.bin")
    revisions.append(resolve_model(str(folder), None, True))
    assert len(set(revisions)) == 4
