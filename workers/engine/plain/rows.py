"""The engine's part in a running `generate`: tokens are drawn, and rows end, as in the speculative engine."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria

from schemas.generation import Request
from workers.engine.constraints import Logits
from workers.engine.plain.calling import leave_only
from workers.engine.rows import Row, RowLimits, Rows, context_of
from workers.engine.sampling import constrained, target_noise, target_tokens


class BatchRows:
    """The rows of one batch, each in the slot that is its place in the batch.

    requests: with the prompts that their constraints see.
    """

    def __init__(self, requests: Sequence[Request], limits: RowLimits) -> None:
        self.rows = Rows(len(requests), limits)
        self.finished: list[Row] = []
        self.max_new_tokens = max(row.max_tokens for row in self.rows.place(requests))

    def draw(self, logits: Logits) -> Tensor:
        """Each row's next token (B, 1) from logits (B, 1, V); those of rows that have ended mean nothing."""
        rows, device = self.rows, logits.device
        index = torch.tensor([[len(row.generated) if row else 0] for row in rows.slots]).to(device)
        sampling = rows.sampling(device)
        longest = max((row.length for row in rows), default=0)
        context = context_of(rows.slots, max(longest, 1), index[:, :0]) if sampling.constraints else None
        noise = target_noise(sampling, index, rows.limits.vocab_size)
        return target_tokens(constrained(logits, sampling, index, context), sampling, noise)

    def keep(self, tokens: Sequence[int]) -> list[bool]:
        """Moves each row on by its token; returns which rows have ended."""
        for row in self.rows:
            token = [tokens[row.slot]]
            if row.generated:
                row.keep_round(token, num_drafted=0)
            else:
                row.keep(token)  # the prompt's forward drew it
        self.finished += self.rows.release_finished()
        return [row is None for row in self.rows.slots]


class Drawing(LogitsProcessor):  # type: ignore[misc]
    """Leaves `generate` no other choice than the rows' own tokens."""

    def __init__(self, batch: BatchRows) -> None:
        self._batch = batch

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return leave_only(self._batch.draw(Logits(scores[:, None])), scores)


class Ending(StoppingCriteria):  # type: ignore[misc]
    """Ends rows where they end, and calls between_steps before each further step."""

    def __init__(self, batch: BatchRows, between_steps: Callable[[], None]) -> None:
        self._batch, self._between_steps = batch, between_steps

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        has_ended = self._batch.keep(input_ids[:, -1].tolist())
        if not all(has_ended):
            self._between_steps()
        return torch.tensor(has_ended, device=input_ids.device)
