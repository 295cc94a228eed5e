"""Loading a target: what it takes, what it refuses, and that nothing but the named files decides it."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from jobs.plan.models import resolve_model
from schemas.errors import InvalidJob, ShardRetryable
from tests.engine.conftest import endings, make_engine, make_requests, reference
from tests.engine.tiny_folder import make_folder, make_gguf
from workers.devices.cpu import CpuDevice
from workers.engine import models
from workers.engine.attention import GROUPED
from workers.engine.models import load_target
from workers.engine.packed import PackedLinear

pytestmark = pytest.mark.engine


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path / "model")


def load(path, revision=None, dtype="auto"):
    return load_target(str(path), revision, dtype, CpuDevice())


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_folder_becomes_a_target_that_generates_the_plain_models_tokens(folder):
    target = load(folder, resolve_model(str(folder)))
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    target_requests = make_requests(4)
    expected = reference(type(target)(plain), target_requests)
    assert endings(list(make_engine(target).generate(target_requests))) == expected
    assert target.tokenizer.decode(target.tokenizer("a b").input_ids) == "<s>a b"


def test_on_a_cpu_weights_are_float32_and_packed_and_attention_is_grouped(folder):
    target = load(folder)
    assert target.model.dtype == torch.float32
    assert target.model.config._attn_implementation == GROUPED
    assert isinstance(target.model.get_output_embeddings(), PackedLinear)


def test_another_dtype_is_taken_when_asked_for(folder):
    assert load(folder, dtype="bfloat16").model.dtype == torch.bfloat16


def test_weights_keep_their_values_whatever_dtype_the_config_names(folder):
    change_config(folder, torch_dtype="bfloat16", dtype="bfloat16")
    stored = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(load(folder).model.get_input_embeddings().weight, stored)


def test_a_folder_that_changed_since_its_job_was_submitted_is_refused(folder):
    revision = resolve_model(str(folder))
    change_config(folder, rms_norm_eps=0.5)
    with pytest.raises(InvalidJob, match=f"not at revision {revision}"):
        load(folder, revision)


def test_a_family_is_refused_before_its_weights_are_read(folder):
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    config = transformers.AutoConfig.for_model("bloom").to_dict()
    (folder / "config.json").write_text(json.dumps(config, default=str))
    with pytest.raises(InvalidJob, match=r"model family bloom is not supported by engine speculative: .*ALiBi"):
        load(folder)


def test_the_self_check_is_part_of_loading(folder, monkeypatch):
    monkeypatch.setattr("workers.engine.self_check.ragged_difference", lambda target: 0.5)
    with pytest.raises(InvalidJob, match="gives other logits than whole sequences"):
        load(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"model_type": "from_the_future"}', "from_the_future"),
        ('{"auto_map": {"AutoConfig": "evil.Config"}, "model_type": "evil"}', "needs its own Python code: give --"),
        ("not json", "cannot be loaded"),
    ],
)
def test_a_config_that_transformers_cannot_read_is_one_line(folder, content, message):
    (folder / "config.json").write_text(content)
    (folder / "evil.py").write_text("raise SystemExit('code of a model was run')")
    with pytest.raises(InvalidJob) as caught:
        load(folder)
    assert message in str(caught.value) and str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_weights_that_lack_a_layer_are_refused_instead_of_drawn_at_random(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"], weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InvalidJob, match=r"its weights lack model\.layers\.1\.mlp\.up_proj\.weight and 1 more"):
        load(folder)


def test_a_missing_tokenizer_is_one_line(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(InvalidJob, match=f"model {folder} cannot be loaded: ") as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_pickled_weights_are_refused(folder):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(InvalidJob, match="its weights are pickles"):
        load(folder)


def test_pickles_beside_safetensors_are_not_read(folder):
    (folder / "pytorch_model.bin").write_bytes(b"not even a pickle")
    load(folder)


def test_a_hub_model_is_loaded_at_its_revision_and_without_code(monkeypatch):
    asked = []

    def from_pretrained(name, **keywords):
        asked.append((name, keywords))
        raise OSError("We couldn't connect to the hub.\nCheck your connection.")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", from_pretrained)
    with pytest.raises(InvalidJob) as caught:
        load("owner/name", "a" * 40)
    assert str(caught.value) == (
        "model owner/name cannot be loaded: We couldn't connect to the hub. Check your connection."
    )
    assert asked == [("owner/name", {"revision": "a" * 40, "trust_remote_code": False})]


def test_running_out_of_memory_is_for_another_attempt(folder, monkeypatch):
    def pack(model):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(models, "pack_linear_layers", pack)
    with pytest.raises(ShardRetryable, match="no memory left"):
        load(folder)


def test_a_gguf_file_becomes_the_same_target_as_its_folder(folder, tmp_path):
    gguf = make_gguf(folder, tmp_path / "tiny.gguf")
    target, expected = load(gguf, resolve_model(str(gguf))), load(folder)
    assert torch.equal(target.model.get_input_embeddings().weight, expected.model.get_input_embeddings().weight)
    requests = make_requests(3)
    ended = endings(list(make_engine(target).generate(requests)))
    assert ended == endings(list(make_engine(expected).generate(requests)))


def test_several_weight_files_are_one_model(folder):
    whole = load(folder)
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    parts = {"model-00001-of-00002.safetensors": names[:5], "model-00002-of-00002.safetensors": names[5:]}
    for file, part in parts.items():
        save_file({name: weights[name] for name in part}, folder / file, metadata={"format": "pt"})
    weight_map = {name: file for file, part in parts.items() for name in part}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    embedding = load(folder).model.get_input_embeddings().weight
    assert torch.equal(embedding, whole.model.get_input_embeddings().weight)
