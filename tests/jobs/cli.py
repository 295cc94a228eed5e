"""What the command line's tests look at: what was shown, and what was written."""

from pathlib import Path

import pytest


def only_line(capsys: pytest.CaptureFixture[str]) -> str:
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("jobctl: ") and shown.err.endswith("\n") and shown.err.count("\n") == 1, shown.err
    return shown.err.strip()


def files_under(directory: Path) -> dict[str, int]:
    return {str(p.relative_to(directory)): p.stat().st_mtime_ns for p in directory.rglob("*")}
