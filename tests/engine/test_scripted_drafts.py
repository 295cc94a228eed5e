"""Good, bad and mixed drafts change the number of target steps and not one token."""

from math import ceil

import pytest

from schemas.generation import Completion
from tests.engine.conftest import Ending, endings, make_engine, make_requests, reference, tiny_target
from tests.engine.scripted import NoisyDraft, OracleDraft, WrongDraft

pytestmark = pytest.mark.engine

REQUESTS = make_requests(7, max_new_tokens=14, seed=3)
K = 4


def expected(family: str) -> dict[int, Ending]:
    return reference(tiny_target(family), REQUESTS)


def generate(family: str, source: type[OracleDraft], batch_size: int) -> list[Completion]:
    draft = source(batch_size, REQUESTS, expected(family))
    return list(make_engine(tiny_target(family), batch_size, k=K, draft_source=draft).generate(REQUESTS))


@pytest.mark.parametrize("source", [OracleDraft, WrongDraft, NoisyDraft])
@pytest.mark.parametrize("batch_size", [3, 8])
def test_any_draft_gives_the_reference_tokens(family: str, batch_size: int, source: type[OracleDraft]) -> None:
    assert endings(generate(family, source, batch_size)) == expected(family)


def test_right_drafts_take_k_plus_one_tokens_a_step(family: str) -> None:
    for completion in generate(family, OracleDraft, 3):
        statistics = completion.statistics
        assert statistics.num_target_steps == ceil((len(completion.token_ids) - 1) / (K + 1))
        assert statistics.num_accepted_draft_tokens == statistics.num_draft_tokens


def test_wrong_drafts_take_one_token_a_step(family: str) -> None:
    for completion in generate(family, WrongDraft, 3):
        statistics = completion.statistics
        assert statistics.num_target_steps == len(completion.token_ids) - 1
        assert statistics.num_accepted_draft_tokens == 0 < statistics.num_draft_tokens


def test_mixed_drafts_are_kept_in_part() -> None:
    histograms = [c.statistics.acceptance_histogram for c in generate("llama", NoisyDraft, 3)]
    totals = [sum(column) for column in zip(*histograms, strict=True)]
    assert len(totals) == K + 1 and all(totals)
