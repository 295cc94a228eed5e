"""Narrowing: which of the rows that were in a batch when its worker died is to blame.

Bisection over attempts: of what died together no more than half is tried together again. A sample that was alone in
the batch at two deaths is poison. So each death of a poison row halves the smallest set that it is known to be in, and
it costs at most 2 + ceil(log2(batch)) of them, whatever else ends workers meanwhile; one that was killed from outside
costs a few smaller batches and no row.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from schemas.generation import SampleKey
from workers.journal import Death

NUM_DEATHS_ALONE = 2


def poison_keys(deaths: Sequence[Death]) -> dict[SampleKey, str | None]:
    """Samples that were alone at NUM_DEATHS_ALONE deaths, with the error that the last of these left."""
    alone = [(key, death.error) for death in deaths if len(death.keys) == 1 for key in death.keys]
    counts = Counter(key for key, _ in alone)
    return {key: error for key, error in alone if counts[key] >= NUM_DEATHS_ALONE}


def suspect_groups(deaths: Sequence[Death], unfinished: Collection[SampleKey]) -> list[list[SampleKey]]:
    """Groups of unfinished samples to try, each alone and in this order, before all others.

    What is left of a set that died, once the smaller ones in it are tried, is tried in pieces of at most half the set.
    """
    groups: list[list[SampleKey]] = []
    placed: set[SampleKey] = set()
    for died in sorted({death.keys for death in deaths}, key=lambda keys: (len(keys), sorted(keys))):
        left, half = sorted((died & set(unfinished)) - placed), (len(died) + 1) // 2
        groups += [left[first : first + half] for first in range(0, len(left), half)]
        placed.update(left)
    return groups
