"""What the tests of verify share: a small finished job, and what is found wrong with it."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.plan.planning import save_plan
from jobs.storage.finish import commit_job
from jobs.storage.layout import Layout
from jobs.storage.verify import Verification
from schemas.plan import Plan
from tests.storage import plan_of, run_attempt, spec_of, write_parquet

NUM_ROWS = 7


def carried(num_rows: int) -> dict[str, Any]:
    rows = range(num_rows)
    return {
        "prompt": [f"prompt {row}" for row in rows],
        "score": [float("nan") if row % 2 else float(row) for row in rows],
        "kind": pa.array([f"k{row % 2}" for row in rows]).dictionary_encode(),
        "tags": pa.array([[("a", float(row))] for row in rows], pa.map_(pa.string(), pa.float64())),
    }


def make_job(directory: Path, **options: Any) -> tuple[Layout, Plan]:
    """A finished job of three shards over two row groups."""
    source = write_parquet(directory / "in.parquet", carried(NUM_ROWS), row_group_size=4)
    layout = Layout(directory / "out")
    plan = save_plan(layout, plan_of(spec_of(source, layout.output, shard_rows=3, **options)))
    for shard in plan.shards:
        run_attempt(layout, plan, shard)
    assert commit_job(layout, plan) is not None
    return layout, plan


def kinds(layout: Layout, plan: Plan, with_input: bool = True) -> list[str]:
    return [problem.kind for problem in Verification(layout, plan, with_input).problems()]


def details(layout: Layout, plan: Plan) -> list[str]:
    return [f"{problem.path.name}: {problem.detail}" for problem in Verification(layout, plan).problems()]
