"""What is found wrong with a job's output."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Problem:
    """kind: a short stable word (`part_missing`, `part_bytes`, …). path: the file concerned. detail: one line."""

    kind: str
    path: Path
    detail: str
