"""Which rows are generated together."""

from collections.abc import Iterator, Sequence

from schemas.generation import Request
from workers.engine.families import Sharing
from workers.engine.limits import max_generated_tokens


def plan_batches(
    requests: Sequence[Request], batch_size: int, sharing: Sharing, context_length: int, shared_length: int
) -> Iterator[list[Request]]:
    """All requests in batches of at most batch_size, long prompts first, so that neighbours need little padding.

    sharing: what rows of a batch must have in common. A row that has ended goes on until its batch has: where that
    takes it past context_length, or past shared_length, where it would change the others, they are in other batches.
    """
    limit = min(context_length, shared_length)
    batch: list[Request] = []
    for request in sorted(requests, key=lambda request: -len(request.prompt_token_ids)):
        joined = [*batch, request]
        if batch and not (len(joined) <= batch_size and _may_share(joined, sharing, context_length, limit)):
            yield batch
            joined = [request]
        batch = joined
    if batch:
        yield batch


def _may_share(requests: Sequence[Request], sharing: Sharing, context_length: int, limit: int) -> bool:
    """requests: at least two, the longest prompt first."""
    longest, shortest = (len(requests[index].prompt_token_ids) for index in (0, -1))
    num_new = max(max_generated_tokens(request, context_length) for request in requests)
    return longest + num_new <= limit and (sharing == "padded" or (sharing == "equal" and longest == shortest))
