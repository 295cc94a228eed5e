"""Rows end at an EOS, at their token limit or at the context's end, also inside an accepted run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from schemas.errors import RowFailed
from schemas.generation import Request
from tests.engine.conftest import (
    CONTEXT_LENGTH,
    Ending,
    endings,
    make_engine,
    make_requests,
    reference,
    tiny_target,
    with_eos,
)
from tests.engine.scripted import NoisyDraft, OracleDraft
from workers.engine.drafts.guess import Guess
from workers.engine.statistics import cut_run

pytestmark = pytest.mark.engine

REQUESTS = make_requests(7, seed=7)


def eos_that_occur(family: str, num_ids: int) -> list[int]:
    """The tokens that the rows' middles hold most often."""
    middles = [ending.token_ids[3:15] for ending in reference(tiny_target(family), REQUESTS).values()]
    return [token for token, _ in Counter(t for middle in middles for t in set(middle)).most_common(num_ids)]


@pytest.mark.parametrize("num_ids", [1, 3])
@pytest.mark.parametrize("draft", ["none", "ngram"])
def test_rows_end_at_the_first_eos(family: str, draft: str, num_ids: int) -> None:
    target = with_eos(family, *eos_that_occur(family, num_ids))
    expected = reference(target, REQUESTS)
    assert {"stop"} <= {ending.finish_reason for ending in expected.values()}
    assert endings(list(make_engine(target, draft=draft).generate(REQUESTS))) == expected


def test_an_eos_inside_an_accepted_run_cuts_the_targets_token(family: str) -> None:
    eos = eos_that_occur(family, 2)
    endless = reference(tiny_target(family), REQUESTS)
    target = with_eos(family, *eos)
    draft = UnstoppedOracle(3, REQUESTS, endless)
    completions = list(make_engine(target, k=5, draft_source=draft).generate(REQUESTS))
    assert endings(completions) == reference(target, REQUESTS)
    assert sum(c.statistics.num_cut_target_tokens for c in completions) > 0


class UnstoppedOracle(OracleDraft):
    """Goes on past the EOS, as a draft source that knows of none does."""


def test_an_eos_wins_over_the_length_limit_behind_it() -> None:
    assert cut_run([10, 11, 2, 20, 21, 22], {2}, 5) == (3, "stop")
    assert cut_run([10, 11, 2, 20], {2}, 3) == (3, "stop")
    assert cut_run([10, 11, 2, 20], {2}, 2) == (2, "length")
    assert cut_run([10, 11], {2}, 3) == (2, None)
    assert cut_run([10, 11], set(), 2) == (2, "length")


@pytest.mark.parametrize("draft", ["none", "ngram"])
def test_each_row_keeps_to_its_own_limit(family: str, draft: str) -> None:
    requests = [replace(request, max_new_tokens=1 + request.row_index * 3) for request in REQUESTS]
    completions = list(make_engine(tiny_target(family), draft=draft).generate(requests))
    assert {c.row_index: len(c.token_ids) for c in completions} == {r.row_index: r.max_new_tokens for r in requests}
    assert endings(completions) == reference(tiny_target(family), requests)


def test_no_draft_reaches_past_what_a_row_may_still_keep() -> None:
    requests = [replace(request, max_new_tokens=1 + request.row_index * 3) for request in REQUESTS]
    expected = reference(tiny_target("llama"), requests)
    draft = WatchedOracle(3, requests, expected)
    completions = list(make_engine(tiny_target("llama"), k=4, draft_source=draft).generate(requests))
    assert endings(completions) == expected
    assert 0 < max(draft.limits) == 4


class WatchedOracle(OracleDraft):
    """Checks that after its drafts there is a token left for the target to draw."""

    def __init__(self, num_slots: int, requests: Sequence[Request], endings: Mapping[int, Ending]) -> None:
        super().__init__(num_slots, requests, endings)
        self.limits: set[int] = set()

    def guess(self, limits: Sequence[int]) -> list[Guess]:
        self.limits |= set(limits)
        for limit, rest in zip(limits, self._rest, strict=True):
            assert limit == min(4, max(len(rest) - 1, 0))
        return super().guess(limits)


@pytest.mark.parametrize("draft", ["none", "ngram", "noisy"])
def test_rows_end_where_the_context_ends(family: str, draft: str) -> None:
    prompts = [
        (REQUESTS[i].prompt_token_ids * CONTEXT_LENGTH)[: CONTEXT_LENGTH - n] for i, n in enumerate([1, 2, 6, 15])
    ]
    requests = [Request(i, prompt, 24, seed=i) for i, prompt in enumerate(prompts)]
    expected = reference(tiny_target(family), requests)
    source = NoisyDraft(3, requests, expected) if draft == "noisy" else None
    kind = "none" if draft == "none" else "ngram"
    engine = make_engine(tiny_target(family), draft=kind, k=5, draft_source=source)
    assert endings(list(engine.generate(requests))) == expected
    assert [len(expected[i].token_ids) for i in range(4)] == [1, 2, 6, 15]


@pytest.mark.parametrize("num_tokens", [CONTEXT_LENGTH, CONTEXT_LENGTH + 7])
def test_a_prompt_that_fills_the_context_is_a_failed_row(num_tokens: int) -> None:
    engine = make_engine(tiny_target("llama"))
    with pytest.raises(RowFailed, match=f"{num_tokens} tokens.*{CONTEXT_LENGTH}") as failed:
        next(engine.generate([Request(0, (1,) * num_tokens, 4, seed=0)]))
    assert failed.value.kind == "prompt_too_long"


def test_a_prompt_without_tokens_is_a_failed_row() -> None:
    with pytest.raises(RowFailed) as failed:
        next(make_engine(tiny_target("llama")).generate([Request(0, (), 4, seed=0)]))
    assert failed.value.kind == "empty_prompt"
