"""The one oracle after every fault: each row once, in order, with its own tokens, and nothing else left or changed."""

import hashlib
import os
import time
from pathlib import Path

import pyarrow as pa

from jobs.cli import jobctl
from jobs.storage.gc import UNOWNED_SECONDS
from jobs.storage.layout import Layout
from schemas.job import JobSpec
from tests.oracle import check_output
from tests.storage import leftovers


def check_job(spec: JobSpec) -> pa.Table:
    """A finished job: rows and tokens, `jobctl verify`, and nothing temporary after `jobctl gc`."""
    _make_old(Path(spec.output))
    assert jobctl(["gc", spec.output]) == 0
    table = check_output(spec)
    assert table["status"].to_pylist() == ["ok"] * table.num_rows
    assert jobctl(["verify", spec.output]) == 0
    assert leftovers(Layout(Path(spec.output))) == []
    return table


def _make_old(output: Path) -> None:
    """Files without an attempt's number, such as a plan half written, are left alone until they are an hour old."""
    long_ago = time.time() - 2 * UNOWNED_SECONDS
    for path in output.rglob(".*.tmp"):
        os.utime(path, (long_ago, long_ago))


def digest_of(output: str) -> dict[str, str]:
    """Every file of a job's directory: its name and the hash of its bytes."""
    files = (path for path in sorted(Path(output).rglob("*")) if path.is_file())
    return {str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
