"""All shapes of a job, and the memory they need: the target's, and those of what drafts for it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from workers.engine.buckets import Buckets, GraphKey
from workers.engine.options import EngineOptions
from workers.engine.planner.memory import MemoryPlan, ModelSize
from workers.engine.planner.plan import ShapeNeeds, ShapePlan, plan_shapes
from workers.engine.planner.rounds import RowLength

# Positions of a draft model's forwards: a step, and catching up with few and with many tokens.
DRAFT_WINDOWS = (1, 2, 16)
# A row's tokens in a draft's own tokenizer, beside the target's; longer rows are not drafted for.
MOST_TOKENS_RATIO = 2
# Of the shapes where a draft model takes part; its padding costs less, since it is smaller.
_DRAFT_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class JobLengths:
    """The lengths of a job's rows, shard by shard. is_whole: whether these are all of its rows."""

    shards: Sequence[Sequence[RowLength]]
    is_whole: bool

    @property
    def max_prompt(self) -> int:
        return max((row.prompt for shard in self.shards for row in shard), default=1)

    @property
    def max_length(self) -> int:
        return max((row.prompt + row.generated for shard in self.shards for row in shard), default=2)


class JobShapes(NamedTuple):
    """keys: of the target. draft, draft_keys: where a draft has forwards; early exits run at the target's sizes."""

    target: ShapePlan
    keys: list[GraphKey]
    draft: ShapePlan | None
    draft_keys: list[GraphKey]
    memory: MemoryPlan


def plan_job(
    lengths: JobLengths, options: EngineOptions, sizes: Sequence[ModelSize], is_translated: bool = False
) -> JobShapes:
    """The shapes of a job that is not deterministic, at most max_graphs with the draft's.

    sizes: the target's, then the draft model's where there is one. is_translated: whether that has another tokenizer.
    Raises InvalidJob where max_graphs are too few.
    """
    target_size, *draft_sizes = sizes
    context = min(target_size.context_length, options.kv_length or target_size.context_length)
    has_model, has_exit = bool(draft_sizes), options.exit_layer is not None
    num_draft = int(options.max_graphs * _DRAFT_SHARE) if has_model else 0
    needs = ShapeNeeds(
        shards=lengths.shards,
        max_prompt=lengths.max_prompt if lengths.is_whole else context - 1,
        max_length=lengths.max_length if lengths.is_whole else context,
        batch_size=options.batch_size,
        windows=options.windows,
        kv_weight=target_size.kv_weight,
        max_keys=options.max_graphs - num_draft,
        keys_beside=int(has_exit),
    )
    target = plan_shapes(needs)
    keys = _keys(target, needs)
    draft, draft_keys = None, []
    if has_model:
        drafting = _draft_needs(needs, draft_sizes[0], num_draft, is_translated)
        draft = plan_shapes(drafting)
        draft_keys += _keys(draft, drafting)
    if has_exit:
        draft_keys += [GraphKey("decode", options.batch_size, 1, length) for length in target.borders.kv]
    return JobShapes(target, keys, draft, draft_keys, _memory(sizes, target, options, is_translated))


def _draft_needs(needs: ShapeNeeds, size: ModelSize, max_keys: int, is_translated: bool) -> ShapeNeeds:
    """A draft is first asked after a row's first token, and may be asked again when the row is long."""
    longest = min(needs.max_length * (MOST_TOKENS_RATIO if is_translated else 1), size.context_length)
    shards = [
        [RowLength(row.prompt + 1, row.generated - 1) for row in shard if row.prompt + row.generated <= longest]
        for shard in needs.shards
    ]
    return replace(
        needs,
        shards=[shard for shard in shards if shard],
        max_prompt=longest,
        max_length=longest,
        windows=DRAFT_WINDOWS,
        kv_weight=size.kv_weight,
        max_keys=max_keys,
        keys_beside=0,
    )


def _keys(plan: ShapePlan, needs: ShapeNeeds) -> list[GraphKey]:
    """By the same code that a warm-up takes them from."""
    return Buckets(plan.borders, needs.batch_size, tuple(window - 1 for window in needs.windows)).warm_up_keys()


def _memory(sizes: Sequence[ModelSize], target: ShapePlan, options: EngineOptions, is_translated: bool) -> MemoryPlan:
    first, *drafts = sizes
    ratio = MOST_TOKENS_RATIO if is_translated else 1
    models = (first, *(replace(draft, kv_bytes=draft.kv_bytes * ratio) for draft in drafts))
    return MemoryPlan(models, options.batch_size, target.borders.kv[-1], options.batch_size * options.windows[-1])
