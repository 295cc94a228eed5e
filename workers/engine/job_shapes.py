"""The shapes of one job: from its rows, through the tokenizer, to a plan."""

from collections.abc import Sequence
from typing import Any

from schemas.generation import Request
from schemas.plan import Plan
from workers.engine.limits import max_generated_tokens
from workers.engine.options import EngineOptions
from workers.engine.planner.job import JobLengths, JobShapes, plan_job
from workers.engine.planner.memory import ModelSize
from workers.engine.planner.rounds import RowLength
from workers.engine.prompts import encode_row
from workers.lengths import sampled_requests


def shapes_of(plan: Plan, tokenizer: Any, sizes: Sequence[ModelSize], is_translated: bool = False) -> JobShapes:
    """sizes, is_translated: as in plan_job. Raises InvalidJob as that does, and where the input is not as planned."""
    options = EngineOptions.of(plan.spec)
    context = min(sizes[0].context_length, options.kv_length or sizes[0].context_length)
    shards, is_whole = sampled_requests(
        plan, lambda row: encode_row(row, plan.spec, tokenizer, context, sizes[0].vocab_size)
    )
    lengths = [[_length(request, context) for request in shard] for shard in shards]
    return plan_job(JobLengths(lengths, is_whole), options, sizes, is_translated)


def _length(request: Request, context_length: int) -> RowLength:
    return RowLength(len(request.prompt_token_ids), max_generated_tokens(request, context_length))
