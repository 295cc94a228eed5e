"""A session: one loaded model that takes on job after job."""

import json

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from jobs.plan.models import resolve_model
from schemas.errors import InvalidJob, RowFailed
from schemas.generation import InputRow
from schemas.job import JobSpec
from schemas.plan import Plan
from tests.engine.conftest import Ending, endings, reference
from tests.engine.tiny_folder import make_folder, tiny_tokenizer
from workers.engine.session import load_session

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    folder = str(make_folder(tmp_path_factory.mktemp("session") / "model"))
    return JobSpec(
        input="in",
        output="out",
        model=folder,
        revision=resolve_model(folder),
        device="cpu",
        max_new_tokens=12,
        batch_size=3,
    )


@pytest.fixture(scope="module")
def session(spec):
    return load_session(spec, threads=1)


def plan_of(spec, **changes):
    spec = spec.model_copy(update=changes)
    return Plan(
        job_id="job",
        spec=spec,
        prompt_kind="prompt",
        prompt_column="prompt",
        num_rows=0,
        files=(),
        shards=(),
        created_at="2030-01-31T02:00:00Z",
    )


def encode_all(session, plan):
    prompts = ["a b a b a b", "the cat sat on the cat sat", "x", "12 12 12 12", "so it goes, so it goes"]
    rows = [InputRow(index, prompt=prompt) for index, prompt in enumerate(prompts)]
    return [request for row in rows for request in session.encode(row, plan)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"draft": "none"},
        {"draft_lengths": (2,), "batch_size": 2},
        {"draft": "suffix"},
        {"draft": "auto", "exit_layer": 1},
        {"draft": "early-exit", "exit_layer": 1, "draft_lengths": (3,)},
        {"temperature": 1.0, "top_p": 0.9},
        {"temperature": 0.7, "top_k": 5, "seed": 9},
    ],
)
def test_every_job_gets_the_tokens_of_plain_decoding(session, spec, options):
    plan = plan_of(spec, **options)
    assert session.serves(plan.spec)
    session.configure(plan.spec)
    requests = encode_all(session, plan)
    assert endings(list(session.generate(requests))) == reference(session.target, requests)


def test_a_row_may_ask_for_less_and_otherwise(session, spec):
    plan = plan_of(spec)
    session.configure(plan.spec)
    rows = [
        InputRow(0, prompt="a b", params={"max_new_tokens": 3}),
        InputRow(1, prompt="a b", params='{"temperature": 1.5, "seed": 4}'),
    ]
    requests = [request for row in rows for request in session.encode(row, plan)]
    found = endings(list(session.generate(requests)))
    assert found == reference(session.target, requests)
    assert found[0] == Ending(found[0].token_ids, "length") and len(found[0].token_ids) == 3


def test_it_serves_other_jobs_on_what_is_loaded_and_no_others(session, spec):
    assert session.serves(spec.model_copy(update={"seed": 5, "max_new_tokens": 4, "draft": "none", "input": "other"}))
    for other in ({"model": "other"}, {"revision": "other"}, {"dtype": "bfloat16"}, {"device": "auto"}):
        assert not session.serves(spec.model_copy(update=other))


def test_the_engine_and_what_its_draft_has_learnt_stay_within_a_job(session, spec):
    session.configure(spec)
    engine = session._engine
    session.configure(spec.model_copy())
    assert session._engine is engine
    session.configure(spec.model_copy(update={"input": "other"}))
    assert session._engine is not engine


def test_what_drafting_did_is_told_in_json_for_each_shard(session, spec):
    plan = plan_of(spec, draft="suffix")
    session.configure(plan.spec)
    reports = []
    for _ in range(2):
        list(session.generate(encode_all(session, plan)))
        reports.append(session.speculation())
    assert all(json.loads(json.dumps(report, allow_nan=False)) == report for report in reports)
    sums = [sum(report["rounds_by_k"]["suffix"].values()) for report in reports]
    assert 0 < sums[1] < sums[0] * 2, "rounds of both shards were counted"
    assert sum(reports[1]["controller"]["rounds"].values()) == sum(sums)
    session.configure(spec.model_copy(update={"draft": "none"}))
    assert session.speculation() == {}


def test_a_job_with_a_draft_model_gets_the_targets_own_tokens(spec, tmp_path):

    draft = str(make_folder(tmp_path / "draft", num_hidden_layers=1))
    own = spec.model_copy(update={"draft": "model", "draft_model": draft, "draft_lengths": (2,)})
    session = load_session(own, threads=1)
    requests = encode_all(session, plan_of(own))
    completions = list(session.generate(requests))
    assert endings(completions) == reference(session.target, requests)
    assert sum(c.statistics.num_draft_tokens for c in completions) > 0
    assert session.serves(own) and not session.serves(spec)


def test_a_draft_model_that_cannot_run_is_named_as_the_draft(spec, tmp_path):
    with pytest.raises(InvalidJob, match=r"--draft-model .*nowhere"):
        load_session(spec.model_copy(update={"draft": "model", "draft_model": str(tmp_path / "nowhere")}), threads=1)


def test_a_draft_model_of_a_family_that_cannot_draft_is_told_so_without_advice_for_targets(spec, tmp_path):
    config = AutoConfig.for_model("mamba", vocab_size=100, hidden_size=16, num_hidden_layers=1, state_size=4)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "mamba")
    tiny_tokenizer().save_pretrained(tmp_path / "mamba")
    with pytest.raises(InvalidJob, match=r"--draft-model .* cannot draft; choose another one: .*mamba") as refused:
        load_session(spec.model_copy(update={"draft": "model", "draft_model": str(tmp_path / "mamba")}), threads=1)
    assert "--engine" not in str(refused.value)


def test_threads_of_a_job_do_not_stay_for_the_next(spec):
    before = torch.get_num_threads()
    load_session(spec.model_copy(update={"num_threads": before + 1}))
    assert torch.get_num_threads() == before + 1
    load_session(spec)
    assert torch.get_num_threads() == before


def test_rounds_can_stop_a_generation(session, spec):
    session.configure(spec)

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(session.generate(encode_all(session, plan_of(spec)), stop))


def test_a_row_that_cannot_be_encoded_fails_alone(session, spec):
    with pytest.raises(RowFailed) as caught:
        session.encode(InputRow(3, prompt="a" * 500), plan_of(spec))
    assert caught.value.kind == "prompt_too_long"


def test_text_is_decoded_without_eos(session):
    tokenizer = session.target.tokenizer
    token_ids = tokenizer("hi there .", add_special_tokens=False).input_ids
    assert session.decode([*token_ids, tokenizer.eos_token_id]) == "hi there ."


def test_versions_name_what_decides_bits(session):
    versions = session.versions()
    assert set(versions) == {"torch", "transformers", "tokenizers", "device", "dtype"}
    assert (versions["device"], versions["dtype"]) == ("cpu", "float32")
    assert session.load_seconds > 0


def test_a_model_that_changed_is_not_loaded(spec):
    with pytest.raises(InvalidJob, match="not at revision sha256:0"):
        load_session(spec.model_copy(update={"revision": "sha256:0"}), threads=1)
