"""The draft length that the controller chooses loses little to plain decoding and to the best fixed length."""

import json
import random
from itertools import pairwise

import pytest

from tests.bench.replay import FixedLength, Spot, replay
from tests.engine.draft_traces import (
    LADDER,
    STEP_SECONDS,
    bursts,
    clock,
    controller_for,
    fixed_seconds,
    lognormal,
    steady,
)
from workers.engine.draft_length import Controller, RoundFacts
from workers.engine.drafts.guess import NO_GUESS, Guess

pytestmark = pytest.mark.engine

each_batch_size = pytest.mark.parametrize("batch_size", [1, 4, 8])
each_cost = pytest.mark.parametrize("is_free", [True, False], ids=["free", "costly"])


@each_batch_size
@each_cost
@pytest.mark.parametrize("rate", [0.0, 0.05])
def test_useless_drafts_cost_less_than_three_percent(batch_size: int, is_free: bool, rate: float) -> None:
    traces, times = steady(rate, 5 * batch_size), clock(batch_size, is_free)
    _, seconds = controller_for(traces, times, batch_size)
    assert seconds <= replay(traces, FixedLength(0), times, batch_size).seconds / 0.97


@each_batch_size
@each_cost
@pytest.mark.parametrize("rate", [0.3, 0.6, 0.9])
def test_steady_acceptance_gets_nearly_the_best_fixed_length(batch_size: int, is_free: bool, rate: float) -> None:
    traces, times = steady(rate, 5 * batch_size), clock(batch_size, is_free)
    _, seconds = controller_for(traces, times, batch_size)
    fixed = fixed_seconds(traces, times, batch_size)
    assert seconds <= fixed[0] / 0.97
    assert seconds <= min(fixed.values()) / 0.95


@each_batch_size
@each_cost
def test_copies_between_dead_stretches_get_nearly_the_best_fixed_length(batch_size: int, is_free: bool) -> None:
    traces, times = bursts(4 * batch_size), clock(batch_size, is_free)
    _, seconds = controller_for(traces, times, batch_size)
    fixed = fixed_seconds(traces, times, batch_size)
    assert seconds <= fixed[0] / 0.97
    assert seconds <= min(fixed.values()) / 0.95


def test_free_guesses_in_bursts_beat_every_fixed_length() -> None:
    traces, times = bursts(32), clock(8, is_free=True)
    _, seconds = controller_for(traces, times, 8)
    assert seconds < min(fixed_seconds(traces, times, 8).values())


@each_cost
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9])
def test_jitter_and_a_machine_that_slows_down_threefold_change_little(is_free: bool, rate: float) -> None:
    traces = steady(rate, 48)
    seen = clock(8, is_free, speed=lambda number: 3.0 if number >= 200 else 1.0, jitter=lognormal(0.5))
    controller = Controller(LADDER, 8)
    controller.warm_up(seen.step_seconds)
    rounds = replay(traces, controller, seen, 8).rounds
    drafting = seen.draft_seconds or dict.fromkeys(LADDER, 0.0)
    seconds = sum(number * (seen.step_seconds[k] + drafting[k]) for k, number in rounds.items())
    assert seconds <= min(fixed_seconds(traces, clock(8, is_free), 8).values()) / 0.95


@each_cost
def test_single_steps_of_ten_times_the_time_change_little(is_free: bool) -> None:
    rng = random.Random(0)
    traces = steady(0.6, 48)
    spikes = clock(8, is_free, jitter=lambda _: 10.0 if rng.random() < 0.05 else 1.0)
    _, seconds = controller_for(traces, spikes, 8)
    assert seconds <= min(fixed_seconds(traces, spikes, 8).values()) / 0.95


def test_a_wrong_measurement_at_warm_up_is_put_right() -> None:
    times, controller = clock(8, is_free=True), Controller(LADDER, 8)
    controller.warm_up({**times.step_seconds, 0: 0.08})  # plain steps seem slower than they are
    replay(steady(0.0, 40), controller, times, 8)
    traces = steady(0.0, 40, seed=1)
    assert replay(traces, controller, times, 8).seconds <= replay(traces, FixedLength(0), times, 8).seconds / 0.97


@each_batch_size
def test_a_costly_draft_that_was_switched_off_is_found_out_to_have_become_good(batch_size: int) -> None:
    times, controller = clock(batch_size, is_free=False), Controller(LADDER, batch_size)
    controller.warm_up(times.step_seconds)
    replay(steady(0.0, 10 * batch_size), controller, times, batch_size)
    assert controller.report()["decisions"]["replay"]["switch_offs"] > 0
    traces = steady(0.9, 5 * batch_size, seed=1)
    assert replay(traces, controller, times, batch_size).seconds < 0.85 * fixed_seconds(traces, times, batch_size)[0]


@each_cost
def test_trying_other_lengths_costs_about_one_percent(is_free: bool) -> None:
    controller, seconds = controller_for(steady(0.05, 60), clock(8, is_free), 8)
    decisions = controller.report()["decisions"]["replay"]
    assert decisions["probes"] > 3
    assert decisions["probe_seconds"] <= 0.01 * seconds + 2 * STEP_SECONDS[8][0]


def test_a_free_source_that_is_never_verified_is_known_at_every_position() -> None:
    controller = Controller((0, 4), 1)
    controller.warm_up({0: 1.0, 4: 100.0})
    controller.start(0)
    for place in range(200):
        assert controller.ask("x", [1000], is_free=True) == 4
        wrong_third = [place, place + 1, -1, place + 3]
        assert controller.settle("x", [Guess(wrong_third)]) == 0
        controller.observe(RoundFacts("x", 0, [0], [0], [0], 1.0, committed=[[place]]))
    first, second, third = controller.report()["acceptance"]["x"]["0"]
    assert first["accepted"] == first["trials"] > 50 and second["accepted"] == second["trials"] > 50
    assert third["accepted"] == 0 < third["trials"]


def test_guesses_are_watched_only_as_far_as_they_say_something() -> None:
    controller = Controller((0, 8), 1)
    controller.warm_up({0: 1.0, 8: 100.0})
    controller.start(0)
    for tokens in ([1], [2], [3]):
        controller.ask("x", [8], is_free=True)
        controller.settle("x", [Guess([1, 2]) if tokens == [1] else NO_GUESS])
        controller.observe(RoundFacts("x", 0, [0], [0], [0], 1.0, committed=[tokens]))
    assert [p["trials"] for p in controller.report()["acceptance"]["x"]["0"]] == [1, 1]


def test_a_costly_source_that_has_nothing_to_say_is_switched_off() -> None:
    traces = [[Spot(0, 0)] * 100 for _ in range(16)]
    controller, seconds = controller_for(traces, clock(8, is_free=False), 8)
    assert seconds <= replay(traces, FixedLength(0), clock(8, is_free=False), 8).seconds / 0.97
    assert controller.report()["decisions"]["replay"]["switch_offs"] > 0


def test_rows_of_a_kind_apart_are_told_apart() -> None:
    sure, unsure = [Spot(8, 8, kind=5)] * 200, [Spot(8, 0, kind=1)] * 200
    controller, _ = controller_for([sure, unsure] * 8, clock(8, is_free=True), 8)
    kinds = controller.report()["acceptance"]["replay"]
    assert kinds["5"][0]["estimate"] > 0.9 > 0.1 > kinds["1"][0]["estimate"]


def test_lengths_of_about_the_same_worth_are_not_changed_back_and_forth() -> None:
    traces = steady(0.6, 48)
    times = clock(8, is_free=False, jitter=lognormal(0.2))
    controller, _ = controller_for(traces, times, 8)
    report = controller.report()
    assert report["decisions"]["replay"]["changes"] < 0.1 * sum(report["rounds"].values())


@each_cost
@pytest.mark.parametrize("k", [0, 3])
def test_a_ladder_of_one_rung_is_that_length_always(is_free: bool, k: int) -> None:
    controller = Controller([k], 2)
    controller.start(0)
    for limits in ([5, 0], [0, 0], [1, 9]):
        assert controller.ask("x", limits, is_free) == k
        assert controller.settle("x", [NO_GUESS, NO_GUESS]) == k
        controller.observe(RoundFacts("x", k, [0, 0], [0, 0], [0, 0], 1.0, committed=[[1], []]))
    assert controller.report()["rounds"] == {str(k): 3}


def test_a_ladder_without_0_never_gives_0() -> None:
    times, controller = clock(8, is_free=False), Controller((1, 4), 8)
    controller.warm_up(times.step_seconds)
    rounds = replay(steady(0.0, 16), controller, times, 8).rounds
    assert set(rounds) <= {1, 4} and rounds[1] > 20 * rounds[4]


def test_no_more_is_asked_than_rows_can_use() -> None:
    controller = Controller(LADDER, 2)
    controller.warm_up(STEP_SECONDS[8])
    controller.start(0)
    assert [controller.ask("x", [limit, 0], is_free=True) for limit in (0, 1, 3, 4, 100)] == [0, 1, 4, 4, 8]


def test_once_no_rows_wait_the_row_that_ends_last_decides() -> None:
    """One row has much before it and bad drafts, the others little and good ones: to end sooner, do not draft."""

    def settled(limits: list[int]) -> int:
        controller = Controller((0, 8), 4)
        controller.warm_up({0: 1.0, 8: 1.3})
        for slot in range(3):
            controller.start(slot)
        controller.ask("x", limits, is_free=True)
        return controller.settle("x", [NO_GUESS, Guess([1] * 8), Guess([1] * 8), NO_GUESS])

    assert settled([100, 100, 100, 0]) == 8
    assert settled([100, 50, 50, 0]) == 0


def test_the_same_rounds_give_the_same_choices_and_report() -> None:
    reports = [controller_for(bursts(16), clock(8, is_free=True), 8)[0].report() for _ in range(2)]
    assert reports[0] == reports[1] == json.loads(json.dumps(reports[0]))


def test_step_times_in_the_report_rise_with_the_window() -> None:
    controller, _ = controller_for(bursts(16), clock(8, is_free=True, jitter=lognormal(1.0)), 8)
    milliseconds = list(controller.report()["step_milliseconds"].values())
    assert len(milliseconds) == len(LADDER) and all(a <= b for a, b in pairwise(milliseconds))


@pytest.mark.parametrize("ladder", [[], [-1, 2]])
def test_ladders_that_are_none_are_refused(ladder: list[int]) -> None:
    with pytest.raises(ValueError, match="ladder"):
        Controller(ladder, 8)


def test_step_times_are_wanted_for_every_rung() -> None:
    with pytest.raises(ValueError, match="step times"):
        Controller(LADDER, 8).warm_up({0: 1.0, 1: 1.1})
