"""Layout: the names of everything in a job's output directory. It touches no file."""

import re
from dataclasses import dataclass
from pathlib import Path

from schemas.plan import ShardPlan

CONTROL_DIR = "_jobctl"
NUM_SHARDS_MAX = 100_000  # five digits, so that names sort as shards do
OF_AN_ATTEMPT = re.compile(r"\.?(\d{5})-(\d+)-[^.-]+\.(?:parquet|json)(?:\.[0-9a-f]+\.tmp)?")
WIP_DIR = re.compile(r"(\d{5})(?:\.(\d+))?")
RECEIPT = re.compile(r"(\d{5})\.(\d+)\.json")


@dataclass(frozen=True, slots=True)
class Layout:
    """Names under `output`, the job's directory.

    Names of shards begin with five digits. What is not committed has a name, or a directory above it, that
    begins with `.` or `_`, which dataset readers skip.
    """

    output: Path

    @property
    def control_dir(self) -> Path:
        return self.output / CONTROL_DIR

    @property
    def spec_path(self) -> Path:
        return self.control_dir / "spec.json"

    @property
    def plan_path(self) -> Path:
        return self.control_dir / "plan.json"

    @property
    def attempts_dir(self) -> Path:
        return self.control_dir / "attempts"

    @property
    def staged_dir(self) -> Path:
        return self.control_dir / "staged"

    @property
    def receipts_dir(self) -> Path:
        return self.control_dir / "receipts"

    @property
    def generations_dir(self) -> Path:
        """Not there before the first retry."""
        return self.control_dir / "generations"

    @property
    def wips_dir(self) -> Path:
        return self.control_dir / "wip"

    @property
    def batch_sizes_dir(self) -> Path:
        """Its files are named by batch sizes that memory had no room for."""
        return self.control_dir / "batch_sizes"

    @property
    def manifest_path(self) -> Path:
        return self.output / "_manifest.json"

    @property
    def success_path(self) -> Path:
        return self.output / "_SUCCESS"

    def attempt_path(self, shard_index: int, attempt: int) -> Path:
        return self.attempts_dir / f"{shard_index:05d}.{attempt}"

    def fence_path(self, shard_index: int, attempt: int) -> Path:
        """There once the attempt holds the shard: earlier ones may no longer publish."""
        return self.attempts_dir / f"{shard_index:05d}.{attempt}.fence"

    def staged_path(self, shard_index: int, attempt: int, unique: str) -> Path:
        """A finished part, not yet committed. `unique` has no dot and no dash."""
        return self.staged_dir / f"{shard_index:05d}-{attempt}-{unique}.parquet"

    def receipt_path(self, shard_index: int, generation: int = 0) -> Path:
        return self.receipts_dir / f"{shard_index:05d}.{generation}.json"

    def generation_path(self, shard_index: int, generation: int) -> Path:
        """There once this generation of the shard is wanted; 0 is without."""
        return self.generations_dir / f"{shard_index:05d}.{generation}"

    def temp_receipt_path(self, shard_index: int, attempt: int, unique: str) -> Path:
        """The receipt before it is published."""
        return self.receipts_dir / f".{shard_index:05d}-{attempt}-{unique}.json"

    def part_name(self, shard: ShardPlan) -> str:
        """The part under `output`, with its Hive directory: `day=01/part-00003.parquet`."""
        name = f"part-{shard.shard_index:05d}.parquet"
        return f"{shard.partition}/{name}" if shard.partition else name

    def part_path(self, shard: ShardPlan) -> Path:
        return self.output / self.part_name(shard)

    def wip_dir(self, shard_index: int, generation: int = 0) -> Path:
        """Each generation has its own: a retry must not take over the failures of the one before."""
        name = f"{shard_index:05d}"
        return self.wips_dir / (f"{name}.{generation}" if generation else name)

    def wip_path(self, shard_index: int, attempt: int, unique: str, generation: int = 0) -> Path:
        """Some finished rows of a running shard."""
        return self.wip_dir(shard_index, generation) / f"{attempt}-{unique}.parquet"


def attempt_in(name: str) -> tuple[int, int] | None:
    """(shard_index, attempt) in the name of a staged part, one half written or a temporary receipt; None in others."""
    found = OF_AN_ATTEMPT.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def generation_in(name: str) -> tuple[int, int] | None:
    """(shard_index, generation) in the name of a directory of finished rows; None in other names."""
    found = WIP_DIR.fullmatch(name)
    return (int(found[1]), int(found[2] or 0)) if found else None


def receipt_in(name: str) -> tuple[int, int] | None:
    """(shard_index, generation) in the name of a receipt; None in other names, those of temporary ones too."""
    found = RECEIPT.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None
