"""The identities of the acceptance statistics hold for every row."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.generation import RowStatistics
from tests.engine.conftest import make_engine, make_requests, with_eos
from workers.engine.statistics import RoundOfRow, cut_run, row_statistics

pytestmark = pytest.mark.engine

K = 4
rounds = st.lists(
    st.integers(0, K).flatmap(lambda drafted: st.tuples(st.just(drafted), st.integers(0, drafted))), max_size=20
)


def assert_identities(num_tokens: int, statistics: RowStatistics) -> None:
    assert sum(statistics.acceptance_histogram) == statistics.num_spec_steps <= statistics.num_target_steps
    assert (
        sum(kept * rounds for kept, rounds in enumerate(statistics.acceptance_histogram))
        == statistics.num_accepted_draft_tokens
        <= statistics.num_draft_tokens
    )
    made = 1 + statistics.num_target_steps + statistics.num_accepted_draft_tokens - statistics.num_cut_target_tokens
    assert num_tokens == made


@given(rounds, st.data())
def test_identities_hold_for_any_rounds_and_any_cut(rounds: list[tuple[int, int]], data: st.DataObject) -> None:
    num_made = 1 + sum(num_accepted + 1 for _, num_accepted in rounds)
    num_tokens = data.draw(st.integers(0, num_made))
    statistics = row_statistics([RoundOfRow(*facts) for facts in rounds], num_tokens, K)
    assert_identities(num_tokens, statistics)
    assert statistics.num_target_steps == len(rounds)
    assert statistics.num_draft_tokens == sum(num_drafted for num_drafted, _ in rounds)


@given(rounds)
def test_a_row_that_nothing_cut_keeps_all_that_was_accepted(rounds: list[tuple[int, int]]) -> None:
    num_made = 1 + sum(num_accepted + 1 for _, num_accepted in rounds)
    statistics = row_statistics([RoundOfRow(*facts) for facts in rounds], num_made, K)
    assert statistics.num_cut_target_tokens == 0
    assert statistics.num_accepted_draft_tokens == sum(num_accepted for _, num_accepted in rounds)


@given(st.lists(st.integers(0, 5), min_size=1), st.sets(st.integers(0, 5)), st.integers(1, 10))
def test_a_run_is_cut_after_the_first_eos_or_at_the_limit(run: list[int], eos: set[int], limit: int) -> None:
    num_kept, reason = cut_run(run, eos, limit)
    kept = run[:num_kept]
    assert not eos & set(kept[:-1])
    assert (reason == "stop") == (kept[-1] in eos)
    assert (reason == "length") == (num_kept == limit and kept[-1] not in eos)
    assert reason is not None or kept == run


@pytest.mark.parametrize(("draft", "k"), [("none", 4), ("ngram", 1), ("ngram", 7)])
def test_identities_hold_for_generated_rows(family: str, draft: str, k: int) -> None:
    engine = make_engine(with_eos(family, 3, 30), draft=draft, k=k)
    for completion in engine.generate(make_requests(8, seed=11)):
        assert_identities(len(completion.token_ids), completion.statistics)
