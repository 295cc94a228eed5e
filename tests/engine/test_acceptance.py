"""Acceptance is estimated by position, kind and row, and leans on what is known where little is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.engine.draft_length.acceptance import Acceptance
from workers.engine.draft_length.tunables import Tunables
from workers.engine.draft_length.watch import Watch
from workers.engine.drafts.guess import Guess

pytestmark = pytest.mark.engine

ODD = [(num_hits, True) for num_hits in (0, 2, 0, 2, 0, 2)]  # first token right every other time, then always one more


def taught(rounds: list[tuple[int, bool]], slot: int = 0, kind: int = 1, repeat: int = 30) -> Acceptance:
    acceptance = Acceptance(4, 2, Tunables())
    for num_hits, is_miss in rounds * repeat:
        acceptance.add(slot, "x", kind, 0, num_hits, is_miss)
        acceptance.end_round()
    return acceptance


def test_rates_are_conditional_on_the_positions_before() -> None:
    rates = taught(ODD).rates("x", 1)
    assert rates[0] == pytest.approx(0.5, abs=0.03)
    assert rates[1] > 0.9
    assert rates[2] < 0.1


def test_a_position_never_reached_is_taken_for_like_the_one_before() -> None:
    acceptance = taught([(1, False)])
    assert acceptance.rates("x", None)[1:] == pytest.approx([acceptance.rates("x", None)[0]] * 3)


def test_before_anything_is_known_the_prior_holds() -> None:
    assert Acceptance(3, 1, Tunables()).rates("x", 7) == [0.5, 0.5, 0.5]


def test_expected_tokens_are_sums_of_products() -> None:
    assert Acceptance(3, 1, Tunables()).expected(0, "x", 7, 3) == pytest.approx([0.0, 0.5, 0.75, 0.875])


def test_kinds_of_a_source_are_estimated_apart() -> None:
    acceptance = taught([(4, False)], kind=2)
    for _ in range(100):
        acceptance.add(0, "x", 1, 0, 0, True)
    acceptance.end_round()
    assert acceptance.rates("x", 2)[0] > 0.85 > 0.1 > acceptance.rates("x", 1)[0]


def test_sources_do_not_see_each_other() -> None:
    acceptance = taught([(4, False)])
    assert acceptance.rates("y", 1) == Acceptance(4, 1, Tunables()).rates("y", 1)


def test_a_row_that_does_worse_is_expected_to_until_another_takes_its_slot() -> None:
    acceptance = Acceptance(4, 2, Tunables())
    for _ in range(50):
        acceptance.add(0, "x", 1, 0, 4, False)
        acceptance.add(1, "x", 1, 0, 0, True)
        acceptance.end_round()
    good, bad = (acceptance.expected(slot, "x", 1, 4)[4] for slot in (0, 1))
    assert good > 2 * bad
    acceptance.start(1)
    assert bad < acceptance.expected(1, "x", 1, 4)[4] < good


def test_faded_evidence_is_soon_outweighed_from_that_position_on() -> None:
    acceptance = taught([(1, True)])
    before = acceptance.rates("x", None)
    acceptance.fade("x", first=1)
    assert acceptance.rates("x", None)[0] == before[0]
    for _ in range(8):
        acceptance.add(0, "x", None, 1, 1, False)
    acceptance.end_round()
    assert before[1] < 0.1 and acceptance.rates("x", None)[1] > 0.4


tokens = st.lists(st.integers(0, 1), min_size=1, max_size=6)


@given(tokens, st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=3), min_size=1, max_size=6), st.integers(0, 6))
def test_a_watched_guess_is_judged_as_if_it_had_been_verified_whole(
    guess: list[int], rounds: list[list[int]], num_verified: int
) -> None:
    row = [token for tokens in rounds for token in tokens]
    num_right = next((i for i, (a, b) in enumerate(zip(guess, row, strict=False)) if a != b), min(len(guess), len(row)))
    num_verified = min(num_verified, len(rounds[0]) - 1, num_right)
    watch = Watch(1)
    verdicts = [watch.take_up(0, "x", Guess(guess, 3), num_verified, rounds[0][num_verified:])]
    verdicts += [watch.judge(0, tokens) for tokens in rounds[1:]]
    found = [verdict for verdict in verdicts if verdict]
    assert num_verified + sum(v.num_hits for v in found) == num_right
    assert any(v.is_miss for v in found) == (num_right < min(len(guess), len(row)))
    assert all(v[:2] == ("x", 3) for v in found)


def test_a_new_row_ends_the_watch() -> None:
    watch = Watch(1)
    watch.take_up(0, "x", Guess([1, 2, 3]), 0, [1])
    watch.start(0)
    assert watch.judge(0, [2]) is None
