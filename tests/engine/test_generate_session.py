"""A session of engine generate: loaded like any other, and all its families with it."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from jobs.plan.models import resolve_model
from schemas.errors import InvalidJob, RowFailed
from schemas.generation import InputRow
from schemas.job import JobSpec
from schemas.plan import Plan
from tests.engine.conftest import endings, make_requests
from tests.engine.plain_models import CONFIGS, alone, plain_tiny
from tests.engine.tiny_folder import make_folder, make_gguf, tiny_tokenizer
from workers.engine.session import load_session

pytestmark = pytest.mark.engine


def make_plain_folder(folder, family):
    model = plain_tiny(family, vocab_size=100)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def spec_of(path, **changes):
    path = str(path)
    given = {"model": path, "revision": resolve_model(path), "engine": "generate", "max_new_tokens": 8}
    return JobSpec(input="in", output="out", device="cpu", batch_size=3, **(given | changes))


def plan_of(spec):
    named = {"prompt_kind": "prompt", "prompt_column": "prompt", "created_at": "2030-01-31T02:00:00Z"}
    return Plan(job_id="job", spec=spec, num_rows=0, files=(), shards=(), **named)


def encode(session, spec, prompts=("a b a b a b", "the cat sat", "x", "12 12 12", "so it goes"), params=None):
    rows = [InputRow(index, prompt=prompt, params=params) for index, prompt in enumerate(prompts)]
    return [request for row in rows for request in session.encode(row, plan_of(spec))]


@pytest.mark.parametrize("family", ["bloom", "mamba", "jamba", "bart", "t5"])
def test_families_that_the_speculative_engine_refuses_are_generated(tmp_path, family):
    spec = spec_of(make_plain_folder(tmp_path / "model", family))
    with pytest.raises(InvalidJob, match="--engine generate runs it"):
        load_session(spec.model_copy(update={"engine": "speculative"}), threads=1)
    session = load_session(spec, threads=1)
    requests = encode(session, spec)
    completions = list(session.generate(requests))
    assert endings(completions) == alone(family, requests, vocab_size=100)
    assert all(session.decode(c.token_ids) for c in completions)
    assert session.load_seconds > 0 and session.speculation() == {}


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "top_p": 0.9, "n": 2}, {"stop": ("a", "e"), "seed": 9}])
def test_both_engines_give_a_job_the_same_rows(tmp_path, options):
    folder = make_folder(tmp_path / "model")
    found = []
    for engine in ("generate", "speculative"):
        spec = spec_of(folder, engine=engine, **options)
        session = load_session(spec, threads=1)
        completions = session.generate(encode(session, spec))
        found.append(sorted((c.row_index, c.sample_index, c.token_ids, c.finish_reason, c.text) for c in completions))
    assert found[0] == found[1]


def test_a_gguf_file_is_generated_as_its_folder_is(tmp_path):
    folder = make_folder(tmp_path / "model")
    requests = make_requests(3)
    gguf = load_session(spec_of(make_gguf(folder, tmp_path / "tiny.gguf")), threads=1)
    expected = endings(list(load_session(spec_of(folder), threads=1).generate(requests)))
    assert endings(list(gguf.generate(requests))) == expected


def test_a_session_serves_jobs_of_its_engine_and_model_alone(tmp_path):
    spec = spec_of(make_folder(tmp_path / "model"))
    session = load_session(spec, threads=1)
    assert session.serves(spec.model_copy(update={"seed": 5, "batch_size": 1, "max_new_tokens": 4}))
    for other in ({"engine": "speculative"}, {"model": "other"}, {"dtype": "bfloat16"}, {"device": "auto"}):
        assert not session.serves(spec.model_copy(update=other))
    speculative = load_session(spec.model_copy(update={"engine": "speculative"}), threads=1)
    assert not speculative.serves(spec)
    assert session.versions() == speculative.versions()


def test_a_job_that_it_takes_on_may_hold_the_context_shorter(tmp_path):
    spec = spec_of(make_folder(tmp_path / "model"))
    session = load_session(spec, threads=1)
    shorter = spec.model_copy(update={"kv_length": 7})
    session.configure(shorter)
    (completion,) = session.generate(encode(session, shorter, ["abc"], {"ignore_eos": True}))
    assert len(completion.token_ids) == 3  # after <s> and the letters
    with pytest.raises(RowFailed, match="context of 7"):
        encode(session, shorter, ["abcdef"])


def test_a_row_that_cannot_be_encoded_fails_alone(tmp_path):
    bart = make_plain_folder(tmp_path / "model", "bart")
    spec = spec_of(bart)
    session = load_session(spec, threads=1)
    longest = CONFIGS["bart"]["max_position_embeddings"] - 1  # and <s>
    (request,) = encode(session, spec, ["a" * longest])
    (completion,) = session.generate([request])
    assert len(completion.token_ids) == 8
    with pytest.raises(RowFailed, match="the model's encoder takes 96") as caught:
        encode(session, spec, ["a" * (longest + 1)])
    assert caught.value.kind == "prompt_too_long"
    with pytest.raises(RowFailed, match="params: temperature"):
        encode(session, spec, ["a"], params={"temperature": -1})


def test_rounds_can_stop_a_generation(tmp_path):
    spec = spec_of(make_plain_folder(tmp_path / "model", "mamba"))
    session = load_session(spec, threads=1)

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(session.generate(encode(session, spec), stop))


def test_loading_refuses_what_the_other_engine_refuses_too(tmp_path):
    folder = make_plain_folder(tmp_path / "model", "bloom")
    spec = spec_of(folder)
    weights = load_file(folder / "model.safetensors")
    lacking = {name: weight for name, weight in weights.items() if "h.1.mlp" not in name}
    save_file(lacking, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InvalidJob, match="not at revision"):
        load_session(spec, threads=1)
    with pytest.raises(InvalidJob, match=r"its weights lack .* and 3 more"):
        load_session(spec_of(folder), threads=1)
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(InvalidJob, match="its weights are pickles"):
        load_session(spec.model_copy(update={"revision": None}), threads=1)


def test_a_decoder_that_nothing_starts_is_one_line(tmp_path):
    folder = make_plain_folder(tmp_path / "model", "t5")
    for name in ("config.json", "generation_config.json"):
        config = json.loads((folder / name).read_text())
        kept = {key: value for key, value in config.items() if key not in ("decoder_start_token_id", "bos_token_id")}
        (folder / name).write_text(json.dumps(kept))
    with pytest.raises(InvalidJob, match="cannot be loaded: its config names no decoder_start_token_id") as caught:
        load_session(spec_of(folder), threads=1)
    assert "\n" not in str(caught.value)
