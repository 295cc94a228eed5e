"""Many random kills over several jobs: python -m tests.faults.soak --kills 1000

One storm after another, of 100 kills each, with seeds that are printed; the sums are printed at the end.
"""

import argparse
import contextlib
import os
import tempfile
import time
from pathlib import Path

from tests.faults.conftest import ON_MEMORY
from tests.faults.random_kills import Report, Storm

KILLS_OF_A_STORM = 100


def add(one: Report, other: Report) -> Report:
    rows = one.rows_committed + other.rows_committed
    generated = one.waste * one.rows_committed + other.waste * other.rows_committed
    return Report(
        kills=one.kills + other.kills,
        num_jobs=one.num_jobs + other.num_jobs,
        rows_committed=rows,
        rows_lost=one.rows_lost + other.rows_lost,
        rows_doubled=one.rows_doubled + other.rows_doubled,
        waste=generated / max(1, rows),
    )


def run_storm(seed: int, num_kills: int) -> Report:
    where = ON_MEMORY if os.access(ON_MEMORY, os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="soak-", dir=where) as directory,
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),  # the oracle's verbs print a line for each job
    ):
        return Storm(Path(directory), seed).run(num_kills)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)), help="of the first storm")
    given = parser.parse_args()
    total, began = Report(), time.monotonic()
    for number in range(-(-given.kills // KILLS_OF_A_STORM)):
        seed = given.seed + number
        total = add(total, run_storm(seed, min(KILLS_OF_A_STORM, given.kills - total.kills.total())))
        print(f"{time.monotonic() - began:6.0f} s, seed {seed}: {total}", flush=True)


if __name__ == "__main__":
    main()
