"""Deterministic jobs in bfloat16: the same bits whatever drafts, whoever shares the batch, in whatever order."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from schemas.errors import RowFailed
from schemas.generation import Request
from tests.engine.conftest import endings, make_engine, make_requests, tiny_model
from tests.engine.every_draft import SCRIPTED, SOURCES, engine_with, run, target
from tests.engine.tiny_folder import tiny_tokenizer
from workers.engine import prefill as prefill_module
from workers.engine import speculative
from workers.engine.engine import Engine
from workers.engine.target import Target

pytestmark = pytest.mark.engine

REQUESTS = make_requests(7, 14, seed=31)
SAMPLED = make_requests(7, 14, seed=32, temperature=1.0, top_p=0.95)
FIXED = {"deterministic": True, "kv_length": 64}
K = 3

Seen = dict[tuple[int, int], tuple[Any, bytes]]  # (row_index, generated index) -> (shape, bits of the logits)


class Recorder:
    """The shape that each token's logits were computed in, and their bits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: Seen = {}
        verify, commit, first = speculative.verify, speculative.commit_rows, prefill_module.draw_first
        logits: list[torch.Tensor] = []

        def watched_verify(batch: Any, proposal: Any) -> Any:
            logits[:] = [verify(batch, proposal)]
            return logits[0]

        def watched_commit(batch: Any, proposal: Any, accepted: Any) -> Any:
            before = {row.slot: (row.request.row_index, len(row.generated)) for row in batch.rows}
            committed = commit(batch, proposal, accepted)
            shape = (*proposal.input_ids.shape, proposal.kv_length)
            for slot, (row_index, index) in before.items():
                for step in range(len(committed[slot])):
                    self._see((row_index, index + step), shape, logits[0][slot, step])
            return committed

        def watched_first(found: Any, placed: Any, limits: Any) -> Any:
            for place, row in enumerate(placed):
                prompt = len(row.request.prompt_token_ids)
                self._see((row.request.row_index, 0), (found.shape[0], -(-prompt // 16)), found[place, 0])
            return first(found, placed, limits)

        monkeypatch.setattr(speculative, "verify", watched_verify)
        monkeypatch.setattr(speculative, "commit_rows", watched_commit)
        monkeypatch.setattr(prefill_module, "draw_first", watched_first)

    def _see(self, key: tuple[int, int], shape: Any, logits: torch.Tensor) -> None:
        self.seen[key] = shape, logits.view(torch.uint8).numpy().tobytes()


def bits_of(monkeypatch: pytest.MonkeyPatch, engine: Engine, requests: Sequence[Request]) -> Seen:
    with monkeypatch.context() as patch:
        recorder = Recorder(patch)
        list(engine.generate(requests))
    return recorder.seen


def half(source: str = "ngram", requests: Sequence[Request] = REQUESTS, **options: Any) -> Any:
    own = target("llama", torch.bfloat16)
    return run(source, own, requests, **FIXED, **options)


@pytest.mark.parametrize("requests", [REQUESTS, SAMPLED])
@pytest.mark.parametrize("source", [*SCRIPTED, *SOURCES])
def test_no_draft_changes_a_token(source: str, requests: list[Request]) -> None:
    own = target("llama", torch.bfloat16)
    plain = endings(list(make_engine(own, draft="none", k=K, **FIXED).generate(requests)))
    scripted = engine_with(source, own, requests, plain, **FIXED)
    assert endings(list(scripted.generate(requests))) == plain


@pytest.mark.parametrize("source", ["none", "wrong", "noisy", "noisy copy", "early exit", "auto"])
def test_shapes_and_bits_depend_on_job_and_row_alone(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = target("llama", torch.bfloat16)
    plain_engine = make_engine(own, draft="none", k=K, **FIXED)
    plain = endings(list(plain_engine.generate(REQUESTS)))
    expected = bits_of(monkeypatch, plain_engine, REQUESTS)
    assert len(expected) == sum(len(ending.token_ids) for ending in plain.values())
    chosen = REQUESTS[::-1][1:]
    if source == "none":
        engine = make_engine(own, draft="none", k=K, **FIXED)
    else:
        engine = engine_with(source, own, REQUESTS, plain, **FIXED)
    found = bits_of(monkeypatch, engine, chosen)
    kept = {row_index: len(plain[row_index].token_ids) for row_index in plain}
    found = {key: value for key, value in found.items() if key[1] < kept[key[0]]}
    assert found == {key: value for key, value in expected.items() if key[0] in {r.row_index for r in chosen}}


def test_with_one_shape_changed_bits_do_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the shapes are fixed for: in bfloat16 a window of 1 and one of k + 1 round differently."""
    own = Target(tiny_model("llama", hidden_size=576, intermediate_size=1536).to(torch.bfloat16), tiny_tokenizer())
    plain = bits_of(monkeypatch, make_engine(own, draft="none", k=K, **FIXED), REQUESTS)
    windows = bits_of(monkeypatch, make_engine(own, draft="none"), REQUESTS)
    changed = [key for key in plain.keys() & windows.keys() if plain[key][1] != windows[key][1]]
    assert changed


def test_every_window_is_the_longest_and_every_prompt_is_prefilled_alone() -> None:
    own = target("llama", torch.bfloat16)
    engine = engine_with("noisy copy", own, REQUESTS, {}, **FIXED)
    list(engine.generate(REQUESTS))
    assert {key.num_positions for key in engine.log.graph_keys if key.phase == "decode"} == {K + 1}
    assert len({key.kv_length for key in engine.log.graph_keys if key.phase == "decode"}) == 1
    assert {key.num_rows for key in engine.log.graph_keys if key.phase == "prefill"} == {1}


def test_a_row_that_the_fixed_cache_cannot_hold_is_a_failed_row() -> None:
    engine = make_engine(target(), deterministic=True, kv_length=20)
    assert engine.context_length == 20
    with pytest.raises(RowFailed, match="20"):
        next(engine.generate([Request(0, (1,) * 20, 4, seed=0)]))


def test_a_shorter_call_in_between_changes_no_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    own = target("llama", torch.bfloat16)
    engine = make_engine(own, draft="none", k=K, **FIXED)
    expected = bits_of(monkeypatch, engine, REQUESTS)
    list(engine.generate(REQUESTS[:1]))
    assert bits_of(monkeypatch, engine, REQUESTS) == expected
