"""A model's size is known from its config, and a job that cannot fit is refused before anything is loaded."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM

from jobs.cli import jobctl
from jobs.submit import plan_job
from schemas.errors import InvalidJob
from schemas.job import JobSpec
from tests.engine.conftest import PlainDevice, tiny_model, tiny_target
from tests.engine.tiny_folder import make_folder
from workers.engine import session as session_module
from workers.engine.model_size import model_size
from workers.engine.models import load_target
from workers.engine.session import Session, load_session
from workers.engine.show_buckets import shapes_of_spec
from workers.lengths import sampled_requests
from workers.reader import read_shard

pytestmark = pytest.mark.engine


class Card(PlainDevice):
    """A device with static shapes and so many bytes."""

    def __init__(self, total_bytes):
        super().__init__(static_shapes=True)
        self.total_bytes = total_bytes

    def memory_bytes(self):
        return self.total_bytes, self.total_bytes


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    """40 prompts of 2 to 41 tokens, in shards of 8."""
    folder = tmp_path_factory.mktemp("size")
    prompts = [chr(97 + index % 26) * (1 + index) for index in range(40)]
    pq.write_table(pa.table({"prompt": prompts}), folder / "prompts.parquet")
    return JobSpec(
        input=str(folder / "prompts.parquet"),
        output=str(folder / "out"),
        model=str(make_folder(folder / "model")),
        device="cpu",
        max_new_tokens=12,
        batch_size=4,
        shard_rows=8,
        draft_lengths=(0, 2),
        max_graphs=12,
    )


def test_the_size_is_that_of_the_loaded_model(spec):
    size = model_size(spec.model, None, torch.float32)
    target = load_target(spec.model, None, "float32", PlainDevice())
    plain = AutoModelForCausalLM.from_pretrained(spec.model)  # the engine packs weights away
    assert size.num_parameters == sum(parameter.numel() for parameter in plain.parameters())
    assert size.weight_bytes == 4 * size.num_parameters
    assert size.kv_bytes == sum(4 * s.num_heads * (s.key_dim + s.value_dim) for s in target.kv_shapes.values())
    assert (size.vocab_size, size.context_length) == (target.vocab_size, target.context_length)


def test_every_familys_size_is_known(family, tmp_path):
    model = tiny_model(family)
    model.save_pretrained(tmp_path)
    size, shapes = model_size(str(tmp_path), None, torch.bfloat16), tiny_target(family).kv_shapes.values()
    assert size.num_parameters == sum(parameter.numel() for parameter in model.parameters())
    assert size.kv_bytes == sum(2 * s.num_heads * (s.key_dim + s.value_dim) for s in shapes)


def test_a_job_that_cannot_fit_is_refused_before_its_model_is_loaded(spec, monkeypatch):
    monkeypatch.setattr(session_module, "get_device", lambda *_: Card(100_000))
    monkeypatch.setattr(session_module, "load_target", lambda *_: pytest.fail("it was loaded"))
    with pytest.raises(InvalidJob, match=r"cache .* \(4 slots of 16 positions\).* do not fit into 0.00 GiB"):
        load_session(spec)


def test_a_job_whose_rows_turn_out_too_long_for_the_memory_is_refused_before_they_run(spec):
    plan = plan_job(spec)
    session = Session(load_target(spec.model, None, "float32", PlainDevice()), Card(100_000), plan.spec)
    with pytest.raises(InvalidJob, match=r"4 slots of 64 positions"):
        session.encode(read_shard(plan, plan.shards[0]).rows[0], plan)


@pytest.mark.parametrize("draft", ["ngram", "model"])
def test_a_job_runs_in_the_shapes_planned_from_all_its_rows_and_in_no_others(spec, draft):
    draft_model = {"draft": draft, "draft_model": spec.model} if draft == "model" else {}
    plan = plan_job(spec.model_copy(update={"max_graphs": 24, **draft_model}))
    target = load_target(spec.model, None, "float32", PlainDevice())
    session = Session(target, Card(10**9), plan.spec, draft_model=target if draft == "model" else None)
    shapes = shapes_of_spec(plan.spec)
    for shard in plan.shards:
        requests = [request for row in read_shard(plan, shard).rows for request in session.encode(row, plan)]
        assert len(list(session.generate(requests))) == 8
        assert session.shapes()["num_new"] == 0
    assert session.shapes()["num_warmed"] == len(shapes.keys) + len(shapes.draft_keys) <= 24
    assert session._engine.log.warmed == set(shapes.keys)


def test_of_a_large_job_shards_spread_over_all_of_it_are_read(spec, monkeypatch):
    plan = plan_job(spec)
    read = []
    monkeypatch.setattr("workers.lengths.NUM_SAMPLED_ROWS", 20)
    requests, is_whole = sampled_requests(plan, lambda row: read.append(row.row_index) or [row])
    assert not is_whole and len(requests) == 3
    assert read == [*range(8), *range(16, 24), *range(32, 40)]


def test_jobctl_shows_what_workers_plan(spec, capsys):
    words = ["buckets", spec.input, "--model", spec.model, "--batch-size", "4", "--max-new-tokens", "12"]
    words += ["--draft-lengths", "0,2", "--max-graphs", "12", "--shard-rows", "8", "--max-model-len", "64"]
    words += ["--dtype", "float32"]
    assert jobctl([*words, "--device-memory", "0.5", "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    shapes = shapes_of_spec(spec.model_copy(update={"kv_length": 64}))
    assert shown["num_graph_keys"] == len(shapes.keys) <= 12 and shown["num_draft_graph_keys"] == 0
    assert shown["padding"] == shapes.target.padding.shares()["padded_queries"] < 0.4
    assert shown["target"]["windows"] == [1, 3] and shown["target"]["num_slots"] == 4
    assert shown["memory"]["total_bytes"] == shapes.memory.total_bytes < shown["memory"]["device_bytes"] == 2**29


def test_jobctl_says_in_one_line_why_there_is_no_plan(spec, capsys):
    words = ["buckets", spec.input, "--model", spec.model, "--max-graphs", "3"]
    assert jobctl(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("jobctl: --max-graphs leaves 3 shapes, and windows of 1, 2, 3, 5, 9 ")
