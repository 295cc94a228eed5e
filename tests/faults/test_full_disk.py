"""A real file system in memory that is full, or becomes read-only, under a real worker."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import FaultyCluster
from tests.integration.conftest import wait_until
from tests.toy import toy_spec

SIZE_BYTES = 2_000_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk: Path) -> Path:
    """Takes all the space that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            for size in (65536, 1):
                while file.write(bytes(size)) == size:
                    pass
        except OSError as error:
            assert error.errno == errno.ENOSPC
    return filler


def test_a_disk_that_is_full_until_somebody_makes_room(faulty: FaultyCluster, tmp_path: Path, small_disk: Path) -> None:
    faulty.settings = faulty.settings.model_copy(update={"max_attempts": 1000})
    (node,) = faulty.start_faulty("w1")
    spec = toy_spec(tmp_path, 32, shard_rows=16, round_seconds=0.2, output=str(small_disk / "out"))
    job_id = faulty.submit(spec)
    faulty.wait_mid_shard(job_id)
    filler = fill(small_disk)
    wait_until(lambda: "No space left on device" in node.log, 20, "the disk is full")
    filler.unlink()
    faulty.finish(spec, job_id)


def test_a_disk_that_becomes_read_only_for_a_while(faulty: FaultyCluster, tmp_path: Path, small_disk: Path) -> None:
    faulty.settings = faulty.settings.model_copy(update={"max_attempts": 1000})
    (node,) = faulty.start_faulty("w1")
    spec = toy_spec(tmp_path, 32, shard_rows=16, round_seconds=0.2, output=str(small_disk / "out"))
    job_id = faulty.submit(spec)
    faulty.wait_mid_shard(job_id)
    wait_until(lambda: remount(small_disk, "ro"), 20, "nothing is open for writing, and it is read-only")
    wait_until(lambda: "Read-only file system" in node.log, 20, "a write has failed")
    assert remount(small_disk, "rw")
    faulty.finish(spec, job_id)


def remount(disk: Path, how: str) -> bool:
    return subprocess.run(["mount", "-o", f"remount,{how}", disk], capture_output=True).returncode == 0
