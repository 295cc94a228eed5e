"""`python -m workers.engine.show_buckets`: a JobSpec as JSON on stdin, its shapes as JSON on stdout.

What `jobctl buckets` starts. No model is loaded and no device taken.
"""

import argparse
import json
import sys
from collections.abc import Sequence

import torch

from jobs.submit import plan_job
from schemas.errors import SpecbatchError
from schemas.job import JobSpec
from workers.devices.base import named_dtype
from workers.engine.drafts.vocabulary import same_tokenizer
from workers.engine.job_shapes import shapes_of
from workers.engine.model_size import model_sizes
from workers.engine.models import load_tokenizer
from workers.engine.planner.job import JobShapes
from workers.engine.planner.report import report


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    try:
        shapes = shapes_of_spec(JobSpec.model_validate_json(sys.stdin.read()))
        if given.device_memory is not None:
            shapes.memory.check(given.device_memory)
    except SpecbatchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(report(shapes, given.device_memory)))
    return 0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m workers.engine.show_buckets", description=__doc__, allow_abbrev=False)
    parser.add_argument("--device-memory", type=int, metavar="BYTES", help="what the job has to fit into")
    return parser


def shapes_of_spec(spec: JobSpec) -> JobShapes:
    """Those that workers would plan. Raises InvalidJob."""
    plan = plan_job(spec)
    spec = plan.spec
    # What the cards choose by themselves; shapes do not depend on it.
    sizes = model_sizes(spec, named_dtype(spec.dtype, auto=torch.float32 if spec.device == "cpu" else torch.bfloat16))
    tokenizer = load_tokenizer(spec.model, spec.revision)
    is_translated = spec.draft_model is not None and not same_tokenizer(
        tokenizer, load_tokenizer(spec.draft_model, spec.draft_revision)
    )
    return shapes_of(plan, tokenizer, sizes, is_translated)


if __name__ == "__main__":
    sys.exit(main())
