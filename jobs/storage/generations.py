"""Generations: which one of a shard is wanted. A retry asks for the next one, which replaces the part.

A marker `generations/<shard>.<g>` says that generation g is wanted; 0 needs none. It is made only where receipt g - 1
is there, whoever makes it makes the same one, and it stays. So a shard has all that is wanted of it when its newest
receipt is as new as its newest marker, and an attempt that knows of neither can only publish what is there already.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping

from jobs.storage.durable import create, fsync_dir, make_dirs, temps_of
from jobs.storage.layout import Layout
from jobs.storage.receipts import newest_generations
from schemas.plan import Plan


def want_generations(layout: Layout, generations: Mapping[int, int]) -> None:
    """generations: shard_index -> one more than that of its newest receipt. Durable on return; twice is as once."""
    make_dirs(layout.generations_dir)
    for shard_index, generation in generations.items():
        create(layout.generation_path(shard_index, generation))
    fsync_dir(layout.generations_dir)


def wanted_generations(layout: Layout) -> dict[int, int]:
    """shard_index -> the newest generation asked for, of shards that were retried; 0 is wanted of the others."""
    wanted: dict[int, int] = {}
    for shard_index, generation in _markers(layout):
        wanted[shard_index] = max(generation, wanted.get(shard_index, 0))
    return wanted


def wanted_generation(layout: Layout, shard_index: int) -> int:
    return wanted_generations(layout).get(shard_index, 0)


def missing_shards(layout: Layout, plan: Plan) -> list[int]:
    """Shards without a receipt of the wanted generation, in order. Raises NotFound where the directory is gone."""
    # In this order: a receipt of a generation that was not wanted when the markers were read counts as none too few.
    wanted, newest = wanted_generations(layout), newest_generations(layout)
    return shards_behind(plan, wanted, newest)


def shards_behind(plan: Plan, wanted: Mapping[int, int], newest: Mapping[int, int]) -> list[int]:
    """wanted, newest: generations by shard_index, as `wanted_generations` and `newest_generations` give them."""
    shards = (shard.shard_index for shard in plan.shards)
    return [shard for shard in shards if newest.get(shard, -1) < wanted.get(shard, 0)]


def withdraw_success(layout: Layout) -> None:
    """Call it once the markers are durable: `_SUCCESS` comes back with the last generation, and not before.

    A finalizer makes the file aside, then looks for markers, then renames it. So one that saw no marker had it aside
    before this began: it is renamed by now, or it is removed here, and its rename fails.
    """
    for temp in temps_of(layout.control_dir, layout.success_path.name):
        temp.unlink(missing_ok=True)
    layout.success_path.unlink(missing_ok=True)
    fsync_dir(layout.output)


def _markers(layout: Layout) -> Iterator[tuple[int, int]]:
    """(shard_index, generation). There is no directory before the first retry."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(layout.generations_dir):
            shard_index, generation = name.split(".")
            yield int(shard_index), int(generation)
