"""Biases, penalties, bad words and least lengths: as transformers computes them, at every place of a drafted window."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LogitsProcessorList
from transformers.generation.logits_process import (
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from schemas.generation import Request
from tests.engine.conftest import VOCAB_SIZE, endings, make_engine, make_requests, reference, tiny_target, with_eos
from tests.engine.scripted import NoisyDraft
from workers.engine.constraints import Constraints, Context, Logits, constrain

pytestmark = pytest.mark.engine

V, EOS = 7, 6
tokens = st.integers(0, V - 1)
requests = st.builds(
    lambda prompt, **options: Request(0, tuple(prompt), 20, seed=0, **options),
    prompt=st.lists(tokens, min_size=1, max_size=6),
    min_new_tokens=st.integers(0, 6),
    repetition_penalty=st.sampled_from([1.0, 0.7, 1.6]),
    presence_penalty=st.sampled_from([0.0, 0.5, -1.0]),
    frequency_penalty=st.sampled_from([0.0, 0.25, -0.5]),
    logit_bias=st.lists(st.tuples(tokens, st.sampled_from([-1.5, 2.0])), max_size=3, unique_by=lambda b: b[0]).map(
        tuple
    ),
    bad_words=st.lists(st.lists(tokens, min_size=1, max_size=3).map(tuple), max_size=3, unique=True).map(tuple),
    stop_token_ids=st.sampled_from([(), (2,)]),
)


def slowly(logits: torch.Tensor, request: Request, generated: list[int]) -> torch.Tensor:
    """One position's logits (V,) by loops over the row's tokens."""
    found = logits.clone()
    before = [*request.prompt_token_ids, *generated]
    for token, bias in request.logit_bias:
        found[token] += bias
    for token in range(V):
        if token in before:
            found[token] = (
                found[token] / request.repetition_penalty
                if found[token] > 0
                else found[token] * request.repetition_penalty
            )
        found[token] -= request.presence_penalty * (token in generated)
        found[token] -= request.frequency_penalty * generated.count(token)
    for word in request.bad_words:
        if len(before) >= len(word) - 1 and before[len(before) - len(word) + 1 :] == list(word[:-1]):
            found[word[-1]] = -torch.inf
    if len(generated) < request.min_new_tokens:
        found[[EOS, *request.stop_token_ids]] = -torch.inf
    return found


def context_of(rows: list[tuple[Request, list[int]]], drafted: torch.Tensor, offset: int = 0) -> Context:
    whole = [[*request.prompt_token_ids, *generated] for request, generated in rows]
    length = max(map(len, whole)) + 2
    padded = torch.tensor([[*row, *[3] * (length - len(row))] for row in whole])
    num_prompt = torch.tensor([len(request.prompt_token_ids) for request, _ in rows])
    return Context(padded, torch.tensor([len(row) for row in whole]), num_prompt, drafted, offset)


@settings(deadline=None)
@given(
    st.lists(st.tuples(requests, st.lists(tokens, min_size=1, max_size=5)), min_size=1, max_size=3),
    st.integers(0, 3),
    st.integers(0, 2**31),
)
def test_every_place_of_a_window_sees_the_drafted_tokens_before_it(
    rows: list[tuple[Request, list[int]]], k: int, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    drafted = torch.randint(V, (len(rows), k), generator=random)
    logits = torch.randn(len(rows), k + 1, V, generator=random)
    constraints = Constraints.of([request for request, _ in rows], V, {EOS}, torch.device("cpu"))
    if constraints is None:
        return
    index = torch.tensor([[len(generated)] for _, generated in rows]) + torch.arange(k + 1)
    found = constrain(Logits(logits), constraints, index, context_of(rows, drafted))
    for row, (request, generated) in enumerate(rows):
        for place in range(k + 1):
            before = [*generated, *drafted[row, :place].tolist()]
            torch.testing.assert_close(found[row, place], slowly(logits[row, place], request, before))
    # A draft's steps look at one place after all that was drafted so far.
    step = constrain(Logits(logits[:, k:]), constraints, index[:, k:], context_of(rows, drafted, offset=k))
    assert torch.equal(step, found[:, k:])


OPTIONS: dict[str, dict[str, Any]] = {
    "repetition penalty": {"repetition_penalty": 1.4},
    "logit bias": {"logit_bias": ((5, 4.0), (9, -100.0))},
    "bad words": {"bad_words": ((4,), (7, 8), (1, 2, 3))},
    "least length": {"min_new_tokens": 9},
    "all": {"repetition_penalty": 1.2, "logit_bias": ((5, 2.0),), "bad_words": ((4,), (7, 8)), "min_new_tokens": 5},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("family", ["llama", "opt"])
def test_greedy_rows_equal_generate_with_its_own_processors(name: str, family: str) -> None:
    target = with_eos(family, 3, 30)
    asked = [replace(request, **OPTIONS[name]) for request in make_requests(5, 14, seed=41)]
    expected = reference(target, asked)
    for draft in (None, NoisyDraft(3, asked, expected)):
        found = endings(list(make_engine(target, draft_source=draft).generate(asked)))
        assert found == expected
        for request in asked:
            assert found[request.row_index].token_ids == generated_by_transformers(target.model, request)


def generated_by_transformers(model: Any, request: Request) -> tuple[int, ...]:
    prompt = torch.tensor([request.prompt_token_ids])
    eos = [3, 30]
    processors = LogitsProcessorList()
    if request.logit_bias:
        processors.append(SequenceBiasLogitsProcessor([[[token], bias] for token, bias in request.logit_bias]))
    if request.repetition_penalty != 1:
        processors.append(RepetitionPenaltyLogitsProcessor(request.repetition_penalty))
    if request.bad_words:
        processors.append(NoBadWordsLogitsProcessor([list(word) for word in request.bad_words]))
    if request.min_new_tokens:
        processors.append(MinNewTokensLengthLogitsProcessor(prompt.shape[1], request.min_new_tokens, eos))
    output = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=request.max_new_tokens,
        do_sample=False,
        logits_processor=processors,
    )
    return tuple(output[0, prompt.shape[1] :].tolist())


def test_options_change_what_is_generated() -> None:
    plain = reference(tiny_target("llama"), make_requests(5, 14, seed=41))
    for name, options in OPTIONS.items():
        if name != "least length":
            asked = [replace(request, **options) for request in make_requests(5, 14, seed=41)]
            assert reference(tiny_target("llama"), asked) != plain, name


def test_rows_without_constraints_are_not_changed_by_their_mates() -> None:
    asked = make_requests(6, 14, seed=42, temperature=0.8)
    mixed = [replace(r, repetition_penalty=1.5, bad_words=((4, 5),)) if r.row_index % 2 else r for r in asked]
    found = endings(list(make_engine(tiny_target("llama")).generate(mixed)))
    alone = endings(list(make_engine(tiny_target("llama")).generate(asked)))
    assert {row: found[row] for row in (0, 2, 4)} == {row: alone[row] for row in (0, 2, 4)}
    assert found == reference(tiny_target("llama"), mixed)


@pytest.mark.parametrize("verification", ["coupled", "rejection"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_row_ends_before_its_least_length(verification: str, temperature: float) -> None:
    target = with_eos("llama", *range(0, VOCAB_SIZE, 2))
    asked = make_requests(6, 14, seed=43, temperature=temperature, min_new_tokens=8, stop_token_ids=(1, 3, 5))
    completions = list(make_engine(target, verification=verification).generate(asked))
    assert min(len(completion.token_ids) for completion in completions) > 8 - 1
    assert any(completion.finish_reason == "stop" for completion in completions)
    for completion in completions:
        assert all(token % 2 and token > 5 for token in completion.token_ids[:8])


def test_stop_tokens_end_a_row_and_eos_can_be_ignored() -> None:
    target = with_eos("llama", *range(0, VOCAB_SIZE, 3))
    asked = make_requests(6, 14, seed=44, ignore_eos=True)
    endless = reference(target, asked)
    assert {ending.finish_reason for ending in endless.values()} == {"length"}
    stops = [replace(r, stop_token_ids=(endless[r.row_index].token_ids[5],)) for r in asked]
    found = endings(list(make_engine(target).generate(stops)))
    assert found == reference(target, stops)
    assert {ending.finish_reason for ending in found.values()} == {"stop"}
    assert all(found[r.row_index].token_ids[-1] == r.stop_token_ids[0] for r in stops)
