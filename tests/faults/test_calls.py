"""Each call that changes the output directory fails, or is the last thing its process does; the next one ends the job.

Client, reconciler and worker are one process here (tests.faults.alone), so that hundreds of calls take minutes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.shim import fault_environ
from tests.integration.conftest import ROOT

# first call, and one of how many
SHARE, ALL = (5, 37), (1, 1)
FAULTS = ("ENOSPC", "once:ENOSPC", "EIO", "once:EIO", "EROFS", "kill_before", "kill_after")
IN_CI = ("ENOSPC", "once:EIO", "kill_before", "kill_after")


def run_alone(directory: Path, url: str, library: Path, do: str, first: int, stride: int) -> dict[str, float]:
    """What it prints at its end."""
    environ = {**os.environ, "LD_PRELOAD": fault_environ(library, do, directory / "mark")["LD_PRELOAD"]}
    command = [sys.executable, "-m", "tests.faults.alone", str(directory), url, do, str(first), str(stride)]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-8000:]
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(do, told)
    return told


def check_share(told: dict[str, float], first: int, stride: int) -> None:
    """Every call that was there had its fault."""
    assert told["last_call"] > 200
    assert told["num_faults"] == len(range(first, int(told["last_call"]), stride))
    # A row is generated twice where its process died before it was saved.
    assert 1.0 <= told["waste"] < 1.2


@pytest.mark.ci
@pytest.mark.parametrize("do", IN_CI)
def test_a_share_of_the_calls(on_memory: Path, redis_url: str, shim: Path, do: str) -> None:
    check_share(run_alone(on_memory, redis_url, shim, do, *SHARE), *SHARE)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("do", FAULTS)
def test_every_call(on_memory: Path, redis_url: str, shim: Path, do: str) -> None:
    check_share(run_alone(on_memory, redis_url, shim, do, *ALL), *ALL)
