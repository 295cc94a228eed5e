"""Step times follow the machine, and single steps hardly move them."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.engine.draft_length.monotone import monotone
from workers.engine.draft_length.step_times import StepTimes

pytestmark = pytest.mark.engine

SECONDS = {0: 1.0, 1: 1.2, 4: 2.0}


def warm() -> StepTimes:
    times = StepTimes()
    times.warm_up(SECONDS)
    return times


@pytest.mark.parametrize("k", SECONDS)
def test_windows_that_do_not_run_follow_the_drift_of_the_one_that_does(k: int) -> None:
    times = warm()
    for _ in range(100):
        times.observe(k, 3 * SECONDS[k])
    for other, seconds in SECONDS.items():
        assert times.seconds(other) == pytest.approx(3 * seconds, rel=0.01)


def test_a_step_of_ten_times_the_time_hardly_counts() -> None:
    times = warm()
    times.observe(0, 10.0)
    assert times.seconds(0) < 1.1


def test_a_wrong_ratio_is_learned_from_changes_of_window() -> None:
    times = warm()
    for number in range(60):
        k = (0, 4)[number % 2]
        times.observe(k, {0: 1.0, 4: 3.0}[k])
    assert times.seconds(4) / times.seconds(0) == pytest.approx(3.0, rel=0.05)


def test_a_longer_window_that_was_measured_faster_counts_as_no_faster() -> None:
    times = StepTimes()
    times.warm_up({0: 1.0, 1: 0.9, 2: 1.5})
    assert times.seconds(0) == times.seconds(1) == pytest.approx(0.9**0.5)
    assert times.seconds(2) == pytest.approx(1.5)


def test_a_window_never_measured_is_taken_as_it_comes() -> None:
    times = StepTimes()
    times.observe(4, 2.0)
    times.observe(0, 1.0)
    assert (times.seconds(0), times.seconds(4)) == pytest.approx((1.0, 2.0))


def test_drafting_is_timed_by_source_token_by_token_and_follows_the_drift() -> None:
    times = warm()
    for _ in range(60):
        times.observe(4, 2.0)
        times.observe_draft("model", 4, 0.4)
    assert times.draft_seconds("model", 4) == pytest.approx(0.4, rel=0.01)
    assert times.draft_seconds("model", 1) == pytest.approx(0.1, rel=0.01)
    assert times.draft_seconds("model", 0) == 0.0
    assert times.draft_seconds("another", 1) == pytest.approx(0.25, rel=0.01)
    for _ in range(120):
        times.observe(4, 4.0)
    assert times.draft_seconds("model", 4) == pytest.approx(0.8, rel=0.01)


@given(st.lists(st.floats(-10, 10), max_size=8))
def test_monotone_never_falls_keeps_the_sum_and_leaves_rising_values_alone(values: list[float]) -> None:
    fitted = monotone(values)
    assert all(a <= b + 1e-9 for a, b in pairwise(fitted))
    assert math.isclose(sum(fitted), sum(values), abs_tol=1e-9)
    assert monotone(sorted(values)) == sorted(values)


def test_monotone_pools_neighbours_that_fall() -> None:
    assert monotone([1.0, 4.0, 2.0, 3.0, 9.0]) == [1.0, 3.0, 3.0, 3.0, 9.0]
