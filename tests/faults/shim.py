"""The layer between a process and the system that makes a chosen call fail, or ends or stops the process there."""

import ctypes
import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("shim.c")
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EROFS": errno.EROFS}


def compile_shim(directory: Path) -> Path:
    """The shared object. Skips the test where there is no C compiler, but not in CI."""
    compiler = shutil.which("cc")
    if compiler is None and os.environ.get("CI") == "true":
        pytest.fail("there is no C compiler for tests/faults/shim.c")
    if compiler is None:
        pytest.skip("there is no C compiler for tests/faults/shim.c")
    library = directory / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", library, SOURCE, "-ldl"], check=True)
    return library


def fault_environ(
    library: Path,
    do: str,
    mark: Path,
    path: Path | None = None,
    send: str | None = None,
    nth: int = 1,
    process: str | None = None,
    stays: bool = False,
) -> dict[str, str]:
    """The variables that give a process a fault; shim.c says what they mean. do: a name of ERRORS, or a signal's."""
    values = {
        "LD_PRELOAD": str(library),
        "FAULT_DO": str(ERRORS.get(do, do)),
        "FAULT_MARK": str(mark),
        "FAULT_PATH": None if path is None else str(path),
        "FAULT_SEND": send,
        "FAULT_NTH": str(nth),
        "FAULT_PROCESS": process,
        "FAULT_STAYS": "1" if stays else None,
    }
    return {name: value for name, value in values.items() if value is not None}


class Shim:
    """The shim of this very process, which was started with it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)

    def arm(self, do: str, nth: int, path: Path | None = None, send: str = "", stays: bool = False) -> None:
        """Counts anew. nth: 0 only counts."""
        what = str(ERRORS.get(do, do)).encode()
        at = b"" if path is None else str(path).encode()
        self._library.fault_arm(at, send.encode(), what, ctypes.c_long(nth), int(stays), b"")

    def disarm(self) -> None:
        self.arm("kill_before", 0)

    @property
    def num_calls(self) -> int:
        return int(self._library.fault_num_calls())

    @property
    def has_landed(self) -> bool:
        return bool(self._library.fault_landed())
