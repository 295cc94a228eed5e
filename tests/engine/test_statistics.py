"""The identities of the acceptance statistics hold for every row."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.generation import RowStatistics
from tests.engine.conftest import make_engine, make_requests, with_eos
from workers.engine.statistics import cut_run, record_round

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


@given(rounds, st.data(), st.integers(2, 40))
def test_identities_hold_for_any_rounds(rounds: list[tuple[int, int]], data: st.DataObject, limit: int) -> None:
    statistics = RowStatistics(acceptance_histogram=[0] * (K + 1))
    num_tokens, reason = 1, None
    for num_drafted, num_accepted in rounds:
        run = data.draw(st.lists(st.integers(0, 20), min_size=num_accepted + 1, max_size=num_accepted + 1))
        num_kept, reason = cut_run(run, {0}, limit - num_tokens)
        record_round(statistics, num_drafted, len(run), num_kept)
        num_tokens += num_kept
        assert_identities(num_tokens, statistics)
        if reason:
            break
    assert num_tokens <= limit
    assert (reason is None) <= (num_tokens < limit)


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
