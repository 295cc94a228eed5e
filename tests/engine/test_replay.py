"""A replay counts what the engine would: rounds, tokens and seconds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.replay import Clock, FixedLength, Spot, replay, trace_row
from workers.engine.draft_length import Controller
from workers.engine.drafts.ngram import NgramDraft

pytestmark = pytest.mark.engine

TIMES = {0: 1.0, 1: 1.25, 2: 1.5, 4: 2.0, 8: 3.0}
spots = st.builds(lambda available, right, kind: Spot(available, min(right, available), kind), *[st.integers(0, 8)] * 3)
traces = st.lists(st.lists(spots, max_size=20), max_size=8)


@given(traces, st.integers(1, 4), st.booleans(), st.sampled_from([*TIMES, None]))
def test_every_policy_brings_every_token_in_its_own_time(
    rows: list[list[Spot]], batch_size: int, is_free: bool, k: int | None
) -> None:
    clock = Clock(TIMES, None if is_free else TIMES)
    controller = Controller(list(TIMES), batch_size)
    controller.warm_up(TIMES)
    result = replay(rows, controller if k is None else FixedLength(k), clock, batch_size)
    assert result.num_tokens == sum(len(row) for row in rows)
    assert sum(result.rounds.values()) <= result.num_tokens
    if is_free:
        assert result.seconds == pytest.approx(sum(TIMES[k] * number for k, number in result.rounds.items()))


@pytest.mark.parametrize("k", TIMES)
def test_drafts_that_are_always_right_bring_whole_windows(k: int) -> None:
    result = replay([[Spot(8, 8)] * 30], FixedLength(k), Clock(TIMES, TIMES), 1)
    num_rounds = math.ceil(30 / (k + 1))
    assert sum(result.rounds.values()) == num_rounds
    drafting = sum(TIMES[k] for place in range(0, 29, k + 1)) if k else 0.0  # none for a row's last token
    verifying = sum(TIMES[k] if place < 29 else TIMES[0] for place in range(0, 30, k + 1))
    assert result.seconds == pytest.approx(verifying + drafting)


def test_plain_steps_are_taken_where_nobody_has_a_guess() -> None:
    result = replay([[Spot(0, 0), Spot(2, 1), Spot(0, 0), Spot(0, 0)]], FixedLength(4), Clock(TIMES), 1)
    assert result.rounds == {0: 2, 4: 1}


def test_slots_are_refilled() -> None:
    rows = [[Spot(0, 0)] * length for length in (5, 1, 1, 3)]
    assert replay(rows, FixedLength(0), Clock(TIMES), 2).rounds == {0: 5}


def test_what_is_measured_jitters_and_what_is_scored_does_not() -> None:
    seen: list[float] = []

    class Watching(FixedLength):
        def observe(self, facts) -> None:  # type: ignore[no-untyped-def]
            seen.append(facts.seconds)

    result = replay([[Spot(0, 0)] * 3], Watching(0), Clock(TIMES, speed=lambda n: 1.0 + n, jitter=lambda _: 10.0), 1)
    assert result.seconds == 1 + 2 + 3
    assert seen == [10.0, 20.0, 30.0]


def test_a_trace_tells_what_a_source_guesses_at_each_place() -> None:
    trace = trace_row(NgramDraft(1, 1, 3), prompt=[1, 2, 3, 4], completion=[9, 1, 2, 3, 7], max_length=2)
    assert [(spot.num_available, spot.num_right) for spot in trace] == [(0, 0), (2, 2), (2, 1), (2, 0)]
    assert [spot.kind for spot in trace] == [0, 1, 2, 3]
