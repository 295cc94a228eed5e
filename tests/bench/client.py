"""What `jobctl --help` costs beside the library it is written with: python -m tests.bench.client"""

import statistics
import subprocess
import sys
from collections.abc import Callable

from tests.bench.timing import median_ratio, side_by_side

NUM_RUNS = 15


def python(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    works = [python("-m", "jobs.cli", "--help"), python("-c", "import click")]
    help_seconds, click_seconds = side_by_side(works, NUM_RUNS)
    print(f"jobctl --help        {statistics.median(help_seconds) * 1000:6.0f} ms")
    print(f"import click         {statistics.median(click_seconds) * 1000:6.0f} ms")
    print(f"ratio                {median_ratio(help_seconds, click_seconds):6.2f}   (median of {NUM_RUNS} pairs)")


if __name__ == "__main__":
    main()
