"""ShardMessage: what travels over the queue. Ids only, never prompts."""

from typing import Literal

from schemas.values import Value


class ShardMessage(Value):
    """Do shard `shard_index` of `job_id`.

    delivery: counts how often the shard was enqueued; a message whose number is not the newest is stale.
    """

    schema_version: Literal[1] = 1
    job_id: str
    shard_index: int
    delivery: int
