"""Narrowing: rows that kill their worker are found, all of them and no others, within a bound of deaths."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from schemas.generation import SampleKey
from workers.journal import Death
from workers.narrowing import poison_keys, suspect_groups

BATCH_SIZES = st.integers(1, 16)
MOST_DEATHS = 1000  # of a search that ends


def keys_of(num_rows: int, num_samples: int = 1) -> list[SampleKey]:
    return [(row, sample) for row in range(num_rows) for sample in range(num_samples)]


def batches_of(deaths: Sequence[Death], unfinished: Sequence[SampleKey], size: int) -> Iterator[list[SampleKey]]:
    """What an attempt runs, in order: each group by itself, and the rest."""
    groups = suspect_groups(deaths, unfinished)
    suspects = {key for group in groups for key in group}
    for keys in (*groups, [key for key in unfinished if key not in suspects]):
        yield from (keys[first : first + size] for first in range(0, len(keys), size))


class Shard:
    """Attempts at one in which killers end their process, and at times somebody else does; or it ends in order.

    data: draws when, and which rows of a batch are through and saved by then.
    """

    def __init__(self, data: st.DataObject, keys: list[SampleKey], size: int, killers: set[int]) -> None:
        self.unfinished, self.deaths, self.poison = keys, list[Death](), set[int]()
        self.num_from_outside = 0
        self._data, self._size, self._killers = data, size, killers

    def run(self, num_from_outside: int, num_in_order: int) -> None:
        left = {"outside": num_from_outside, "in order": num_in_order, "": 0}
        while self.unfinished and len(self.deaths) < MOST_DEATHS:
            self._give_up()
            ending = self._data.draw(st.sampled_from([kind for kind, number in left.items() if number or not kind]))
            left[ending] -= 1
            self._attempt(ending)

    def _give_up(self) -> None:
        rows = {row for row, _ in poison_keys(self.deaths).keys() & set(self.unfinished)}
        self.poison |= rows
        self.unfinished = [key for key in self.unfinished if key[0] not in rows]

    def _attempt(self, ending: str) -> None:
        batches = list(batches_of(self.deaths, self.unfinished, self._size))
        at = self._data.draw(st.integers(0, max(len(batches) - 1, 0))) if ending else -1
        for number, batch in enumerate(batches):
            harmless = [key for key in batch if key[0] not in self._killers]
            ends_here = number == at
            if len(harmless) == len(batch) and not ends_here:
                self._finish(batch)
                continue
            self._finish(self._data.draw(st.sets(st.sampled_from(harmless))) if harmless else ())
            in_batch = frozenset(batch) & frozenset(self.unfinished)
            if in_batch and (ending != "in order" or not ends_here):
                self.deaths.append(Death(in_batch))
                self.num_from_outside += len(harmless) == len(batch)
            return

    def _finish(self, keys: Sequence[SampleKey] | set[SampleKey] | tuple[()]) -> None:
        self.unfinished = [key for key in self.unfinished if key not in keys]


@given(st.data(), st.integers(1, 30), st.integers(1, 3), BATCH_SIZES, st.integers(0, 1), st.integers(0, 4))
def test_exactly_the_killers_are_poison_within_the_bound_of_deaths(
    data: st.DataObject, num_rows: int, num_samples: int, size: int, num_from_outside: int, num_in_order: int
) -> None:
    killers = data.draw(st.sets(st.integers(0, num_rows - 1), max_size=5))
    shard = Shard(data, keys_of(num_rows, num_samples), size, killers)
    shard.run(num_from_outside, num_in_order)
    assert (shard.poison, shard.unfinished) == (killers, [])
    assert len(shard.deaths) - shard.num_from_outside <= len(killers) * (2 + ceil(log2(size)))


@given(st.data(), st.integers(1, 30), BATCH_SIZES, st.integers(2, 8))
def test_a_row_that_kills_nothing_is_poison_only_where_it_was_alone_at_two_deaths(
    data: st.DataObject, num_rows: int, size: int, num_from_outside: int
) -> None:
    shard = Shard(data, keys_of(num_rows), size, killers=set())
    shard.run(num_from_outside, num_in_order=0)
    alone = Counter(row for death in shard.deaths if len(death.keys) == 1 for row, _ in death.keys)
    assert shard.poison == {row for row, number in alone.items() if number >= 2}
    assert shard.unfinished == []


@given(st.data(), st.integers(1, 12), st.lists(st.sets(st.integers(0, 11), min_size=1), max_size=6))
def test_suspects_are_tried_once_each_and_never_more_than_half_of_what_died_together(
    data: st.DataObject, num_rows: int, sets: list[set[int]]
) -> None:
    deaths = [Death(frozenset((row, 0) for row in rows)) for rows in sets]
    unfinished = data.draw(st.lists(st.sampled_from(keys_of(num_rows)), unique=True))
    groups = suspect_groups(deaths, unfinished)
    tried = [key for group in groups for key in group]
    assert len(tried) == len(set(tried))
    assert set(tried) == set(unfinished) & {key for death in deaths for key in death.keys}
    for group in groups:
        smallest = min(len(death.keys) for key in group for death in deaths if key in death.keys)
        assert len(group) <= ceil(smallest / 2)


def test_a_row_that_was_alone_at_one_death_is_tried_once_more() -> None:
    once = [Death(frozenset([(3, 0), (4, 0)])), Death(frozenset([(3, 0)]), "Error: x")]
    assert poison_keys(once) == {}
    assert suspect_groups(once, [(3, 0), (4, 0), (5, 0)]) == [[(3, 0)], [(4, 0)]]
    assert poison_keys([*once, Death(frozenset([(3, 0)]), "Error: y")]) == {(3, 0): "Error: y"}


def test_rows_that_are_done_are_no_suspects() -> None:
    assert suspect_groups([Death(frozenset(keys_of(4)))], [(9, 0)]) == []
    assert suspect_groups([Death(frozenset(keys_of(4)))], [(1, 0), (3, 0)]) == [[(1, 0), (3, 0)]]
