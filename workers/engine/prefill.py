"""Rows begin: waiting prompts of one length bucket are taken into free slots and run together."""

from collections import deque
from collections.abc import Sequence

import numpy as np
import torch

from schemas.generation import Request
from workers.engine.buckets import Buckets
from workers.engine.drafts.base import DraftSource
from workers.engine.rows import Row, Rows
from workers.engine.runner import ModelRunner
from workers.engine.sampling import BatchSampling, Logits, target_tokens


def longest_first(requests: Sequence[Request]) -> deque[Request]:
    """The order of admission: neighbours share a length bucket, and the long rows do not come last."""
    return deque(sorted(requests, key=lambda request: -len(request.prompt_token_ids)))


@torch.inference_mode()
def prefill(
    runner: ModelRunner, draft: DraftSource, rows: Rows, buckets: Buckets, waiting: deque[Request]
) -> list[Row]:
    """One forward over the next prompts, which draws each row's first token; returns rows that end with it."""
    num_rows, requests = next_group(waiting, buckets, rows.num_free)
    placed = rows.place(requests)
    length = buckets.prefill_length(len(requests[0].prompt_token_ids))
    layout = torch.from_numpy(lay_out(placed, num_rows, length, runner.cache.scratch_slot)).to(runner.target.device)
    logits = runner.prefill(layout[:, 2:], slots=layout[:, 0], last_positions=layout[:, 1])  # (R, 1, V)
    for row, token in zip(placed, draw_first(logits, requests), strict=False):
        row.keep([token], rows.eos_token_ids)
        draft.start(row.slot, [*row.request.prompt_token_ids, token])
    return rows.release_finished()


def next_group(waiting: deque[Request], buckets: Buckets, num_free: int) -> tuple[int, list[Request]]:
    """(rows of the forward, the requests taken for it): neighbours of the first one's length bucket."""
    length = buckets.prefill_length(len(waiting[0].prompt_token_ids))
    num_alike = 0
    for request in waiting:
        if num_alike == num_free or buckets.prefill_length(len(request.prompt_token_ids)) != length:
            break
        num_alike += 1
    num_rows = buckets.prefill_rows(num_alike)
    return num_rows, [waiting.popleft() for _ in range(min(num_rows, num_alike))]


def lay_out(placed: Sequence[Row], num_rows: int, length: int, scratch_slot: int) -> np.ndarray:
    """(R, 2 + P) int64: slot, last position, prompt padded on the right. Padding rows go to the scratch slot."""
    layout = np.zeros((num_rows, 2 + length), dtype=np.int64)
    layout[:, 0] = scratch_slot
    for index, row in enumerate(placed):
        prompt = row.request.prompt_token_ids
        layout[index, 0], layout[index, 1] = row.slot, len(prompt) - 1
        layout[index, 2 : 2 + len(prompt)] = prompt
    return layout


def draw_first(logits: Logits, requests: Sequence[Request]) -> list[int]:
    """The target's token 0 of each row, from logits (R, 1, V); padding rows' mean nothing."""
    num_rows = logits.shape[0]
    padding = [None] * (num_rows - len(requests))
    sampling = BatchSampling.from_requests([*requests, *padding], logits.device)
    index = torch.zeros(num_rows, 1, dtype=torch.int64, device=logits.device)
    return target_tokens(logits, sampling, index)[:, 0].tolist()
