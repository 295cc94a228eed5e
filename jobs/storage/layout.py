"""Layout: the names of everything in a job's output directory. It touches no file."""

from dataclasses import dataclass
from pathlib import Path

from schemas.plan import ShardPlan

CONTROL_DIR = "_jobctl"
NUM_SHARDS_MAX = 100_000  # five digits, so that names sort as shards do


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
    def wips_dir(self) -> Path:
        return self.control_dir / "wip"

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

    def temp_receipt_path(self, shard_index: int, attempt: int, unique: str) -> Path:
        """The receipt before it is published."""
        return self.receipts_dir / f".{shard_index:05d}-{attempt}-{unique}.json"

    def part_name(self, shard: ShardPlan) -> str:
        """The part under `output`, with its Hive directory: `day=01/part-00003.parquet`."""
        name = f"part-{shard.shard_index:05d}.parquet"
        return f"{shard.partition}/{name}" if shard.partition else name

    def part_path(self, shard: ShardPlan) -> Path:
        return self.output / self.part_name(shard)

    def wip_dir(self, shard_index: int) -> Path:
        return self.wips_dir / f"{shard_index:05d}"

    def wip_path(self, shard_index: int, attempt: int, unique: str) -> Path:
        """Some finished rows of a running shard."""
        return self.wip_dir(shard_index) / f"{attempt}-{unique}.parquet"


def attempt_of(path: Path) -> int:
    """The attempt in a staged part's or temporary receipt's name, `[.]<shard>-<attempt>-<unique>.<suffix>`."""
    return int(path.name.lstrip(".").split("-")[1])
