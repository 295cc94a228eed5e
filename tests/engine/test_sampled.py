"""A sampled row's tokens depend on its seed, and not on drafts, batch mates, slots or order."""

from dataclasses import replace
from typing import Any

import pytest

from schemas.generation import Request
from tests.engine.conftest import Ending, endings, make_engine, make_requests, reference, tiny_target
from tests.engine.scripted import NoisyDraft

pytestmark = pytest.mark.engine

_OPTIONS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.3},
    {"temperature": 1.0, "top_k": 5},
    {"temperature": 0.7, "top_p": 0.8},
    {"temperature": 1.3, "top_k": 20, "top_p": 0.9},
    {},
)
REQUESTS = [
    replace(request, **_OPTIONS[index % len(_OPTIONS)])
    for index, request in enumerate(make_requests(8, max_new_tokens=12, seed=5))
]


def expected(family: str) -> dict[int, Ending]:
    return reference(tiny_target(family), REQUESTS)


@pytest.mark.parametrize("draft", ["none", "ngram"])
@pytest.mark.parametrize("batch_size", [1, 8])
def test_every_row_equals_the_reference(family: str, batch_size: int, draft: str) -> None:
    completions = make_engine(tiny_target(family), batch_size, draft).generate(REQUESTS)
    assert endings(list(completions)) == expected(family)


def test_order_of_requests_does_not_matter(family: str) -> None:
    completions = make_engine(tiny_target(family)).generate(REQUESTS[::-1])
    assert endings(list(completions)) == expected(family)


def test_half_right_drafts_do_not_matter(family: str) -> None:
    draft = NoisyDraft(3, REQUESTS, expected(family))
    completions = list(make_engine(tiny_target(family), 3, draft_source=draft).generate(REQUESTS))
    assert endings(completions) == expected(family)
    assert sum(c.statistics.num_accepted_draft_tokens for c in completions) > 20


def test_another_seed_gives_other_tokens() -> None:
    def tokens(seed: int) -> tuple[int, ...]:
        request = Request(0, REQUESTS[1].prompt_token_ids, 24, seed=seed, temperature=1.0)
        return next(make_engine(tiny_target("llama")).generate([request])).token_ids

    assert tokens(1) == tokens(1) != tokens(2)
