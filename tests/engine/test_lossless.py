"""Greedy tokens are those of plain decoding, row by row, whatever the batch and the drafts."""

import pytest
import torch

from schemas.generation import Completion, Request
from tests.engine.conftest import FAMILIES, Ending, endings, make_engine, make_requests, reference, tiny_target

pytestmark = pytest.mark.engine

REQUESTS = make_requests(9)


def expected(family: str) -> dict[int, Ending]:
    return reference(tiny_target(family), REQUESTS)


def generate(family: str, batch_size: int, draft: str) -> list[Completion]:
    return list(make_engine(tiny_target(family), batch_size, draft).generate(REQUESTS))


@pytest.mark.parametrize("draft", ["none", "ngram"])
@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_every_row_equals_the_reference(family: str, batch_size: int, draft: str) -> None:
    assert endings(generate(family, batch_size, draft)) == expected(family)


@pytest.mark.parametrize("draft", ["none", "ngram"])
def test_eager_attention_gives_the_same_tokens(family: str, draft: str) -> None:
    engine = make_engine(tiny_target(family, "eager"), batch_size=3, draft=draft)
    assert endings(list(engine.generate(REQUESTS))) == expected(family)


def test_the_reference_equals_generate(family: str) -> None:
    for request in REQUESTS[:4]:
        assert expected(family)[request.row_index].token_ids == generated_by_transformers(family, request)


def test_drafts_were_accepted_and_rejected() -> None:
    statistics = [c.statistics for family in FAMILIES for c in generate(family, 3, "ngram")]
    accepted = sum(s.num_accepted_draft_tokens for s in statistics)
    drafted = sum(s.num_draft_tokens for s in statistics)
    assert 50 < accepted < drafted - 50
    assert any(s.acceptance_histogram[kept] for s in statistics for kept in (1, 2)), "no round kept a part of its draft"


def test_plain_decoding_drafts_nothing() -> None:
    for completion in generate("llama", 3, "none"):
        assert completion.statistics.num_spec_steps == completion.statistics.num_draft_tokens == 0
        assert completion.statistics.acceptance_histogram == []


def generated_by_transformers(family: str, request: Request) -> tuple[int, ...]:
    prompt = torch.tensor([request.prompt_token_ids])
    output = tiny_target(family).model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=request.max_new_tokens, do_sample=False
    )
    return tuple(output[0, prompt.shape[1] :].tolist())
