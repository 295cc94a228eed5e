"""How long a job's rows are: read and encoded before its first shard, to plan shapes for."""

from collections.abc import Callable, Sequence

from schemas.errors import RowFailed
from schemas.generation import InputRow, Request
from schemas.plan import Plan, ShardPlan
from workers.reader import read_shard

# Some seconds of a tokenizer's time.
NUM_SAMPLED_ROWS = 16_384

Encode = Callable[[InputRow], Sequence[Request]]


def sampled_requests(plan: Plan, encode: Encode) -> tuple[list[list[Request]], bool]:
    """(requests of shards spread evenly over the job, whether these are all shards); rows that fail are left out.

    The same for every worker. Raises as read_shard does, and InvalidJob as encode does.
    """
    chosen = _spread(plan.shards)
    shards = [_requests(plan, shard, encode) for shard in chosen]
    return [shard for shard in shards if shard], len(chosen) == len(plan.shards)


def _spread(shards: Sequence[ShardPlan]) -> Sequence[ShardPlan]:
    num_rows = sum(shard.num_rows for shard in shards)
    return shards[:: -(-num_rows // NUM_SAMPLED_ROWS)] if num_rows else shards


def _requests(plan: Plan, shard: ShardPlan, encode: Encode) -> list[Request]:
    requests: list[Request] = []
    for row in read_shard(plan, shard).rows:
        try:
            requests += encode(row)
        except RowFailed:
            continue  # it is never generated
    return requests
