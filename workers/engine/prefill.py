"""Rows begin: waiting prompts of one length bucket are taken into free slots and run together."""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import torch

from schemas.generation import Request, SampleKey
from workers.engine.batch import Batch
from workers.engine.buckets import Buckets
from workers.engine.constraints import Logits
from workers.engine.rows import Row, RowLimits, context_of
from workers.engine.sampling import BatchSampling, constrained, target_noise, target_tokens


def longest_first(requests: Sequence[Request]) -> deque[Request]:
    """The order of admission: neighbours share a length bucket, and the long rows do not come last."""
    return deque(sorted(requests, key=lambda request: -len(request.prompt_token_ids)))


@torch.inference_mode()
def prefill(
    batch: Batch, waiting: deque[Request], on_admit: Callable[[Sequence[SampleKey]], None] = lambda keys: None
) -> list[Row]:
    """One forward over the next prompts, which draws each row's first token; returns rows that end with it."""
    runner, rows, buckets = batch.runner, batch.rows, batch.buckets
    num_rows, requests = next_group(waiting, buckets, rows.num_free)
    on_admit([request.key for request in requests])
    placed = rows.place(requests)
    length = buckets.prefill_length(len(requests[0].prompt_token_ids))
    batch.padding.add_prefill(num_rows, length, sum(len(request.prompt_token_ids) for request in requests))
    prompts = [(row.slot, row.request.prompt_token_ids) for row in placed]
    layout = torch.from_numpy(lay_out(prompts, num_rows, length, runner.cache.scratch_slot)).to(runner.target.device)
    logits = runner.prefill(layout[:, 2:], slots=layout[:, 0], last_positions=layout[:, 1])  # (R, 1, V)
    for row, token in zip(placed, draw_first(logits, placed, rows.limits), strict=False):
        row.keep([token])
        batch.draft.start(row.slot, [*row.request.prompt_token_ids, token])
        batch.controller.start(row.slot)
    return batch.release_finished()


def next_group(waiting: deque[Request], buckets: Buckets, num_free: int) -> tuple[int, list[Request]]:
    """(rows of the forward, the requests taken for it): neighbours of the first one's length bucket."""
    length = buckets.prefill_length(len(waiting[0].prompt_token_ids))
    num_alike = 0
    for request in waiting:
        if num_alike == num_free or buckets.prefill_length(len(request.prompt_token_ids)) != length:
            break
        num_alike += 1
    num_rows = buckets.prefill_rows(num_alike, length)
    return num_rows, [waiting.popleft() for _ in range(min(num_rows, num_alike))]


def lay_out(prompts: Sequence[tuple[int, Sequence[int]]], num_rows: int, length: int, scratch_slot: int) -> np.ndarray:
    """(R, 2 + P) int64: slot, last position, prompt padded on the right. Padding rows go to the scratch slot.

    prompts: (slot, token ids) of each row.
    """
    layout = np.zeros((num_rows, 2 + length), dtype=np.int64)
    layout[:, 0] = scratch_slot
    for index, (slot, prompt) in enumerate(prompts):
        layout[index, 0], layout[index, 1] = slot, len(prompt) - 1
        layout[index, 2 : 2 + len(prompt)] = prompt
    return layout


def draw_first(logits: Logits, placed: Sequence[Row], limits: RowLimits) -> list[int]:
    """The target's token 0 of each row, from logits (R, 1, V); padding rows' mean nothing."""
    num_rows = logits.shape[0]
    rows = [*placed, *[None] * (num_rows - len(placed))]
    requests = [row.request if row else None for row in rows]
    sampling = BatchSampling.from_requests(requests, logits.device, limits.vocab_size, limits.eos_token_ids)
    index = torch.zeros(num_rows, 1, dtype=torch.int64, device=logits.device)
    context = context_of(rows, max(row.length for row in placed), index[:, 1:]) if sampling.constraints else None
    allowed = constrained(logits, sampling, index, context)
    noise = target_noise(sampling, index, limits.vocab_size)
    return target_tokens(allowed, sampling, noise)[:, 0].tolist()
