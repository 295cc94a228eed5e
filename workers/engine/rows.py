"""The rows that are being generated, each in its slot."""

from collections.abc import Collection, Iterator, Sequence

import torch

from schemas.generation import Completion, FinishReason, Request, RowStatistics
from workers.engine.limits import max_generated_tokens
from workers.engine.sampling import BatchSampling
from workers.engine.statistics import cut_run, record_round


class Row:
    """One row in a slot: what it has generated, and how much more it may."""

    __slots__ = ("finish_reason", "generated", "max_tokens", "request", "slot", "statistics")

    def __init__(self, request: Request, slot: int, max_tokens: int, max_draft_tokens: int) -> None:
        self.request, self.slot, self.max_tokens = request, slot, max_tokens
        self.generated: list[int] = []
        self.finish_reason: FinishReason | None = None
        histogram = [0] * (max_draft_tokens + 1) if max_draft_tokens else []
        self.statistics = RowStatistics(acceptance_histogram=histogram)

    @property
    def length(self) -> int:
        """Tokens of prompt and output."""
        return len(self.request.prompt_token_ids) + len(self.generated)

    @property
    def num_draftable(self) -> int:
        """Drafted tokens that a round can still keep: the target's own token comes after them."""
        return self.max_tokens - len(self.generated) - 1

    def keep(self, tokens: Sequence[int], eos_token_ids: Collection[int]) -> list[int]:
        """Appends tokens up to the row's end, where it sets finish_reason; returns those appended."""
        num_kept, reason = cut_run(tokens, eos_token_ids, self.max_tokens - len(self.generated))
        kept = list(tokens[:num_kept])
        self.generated += kept
        self.finish_reason = reason
        return kept

    def keep_round(self, tokens: Sequence[int], eos_token_ids: Collection[int], num_drafted: int) -> list[int]:
        """`keep`, for the tokens of one round, with its statistics."""
        kept = self.keep(tokens, eos_token_ids)
        record_round(self.statistics, num_drafted, len(tokens), len(kept))
        return kept

    def completion(self) -> Completion:
        assert self.finish_reason is not None
        return Completion(self.request.row_index, tuple(self.generated), self.finish_reason, self.statistics)


class Rows:
    """B slots, each with a row or free, and the rows' sampling options on the device."""

    def __init__(
        self, num_slots: int, max_draft_tokens: int, eos_token_ids: frozenset[int], context_length: int
    ) -> None:
        self.slots: list[Row | None] = [None] * num_slots
        self.max_draft_tokens = max_draft_tokens
        self.eos_token_ids = eos_token_ids
        self._context_length = context_length
        self._sampling: BatchSampling | None = None

    def __iter__(self) -> Iterator[Row]:
        return (row for row in self.slots if row is not None)

    def __bool__(self) -> bool:
        return any(row is not None for row in self.slots)

    @property
    def num_free(self) -> int:
        return self.slots.count(None)

    def place(self, requests: Sequence[Request]) -> list[Row]:
        """Puts requests into free slots, lowest first."""
        free = [slot for slot, row in enumerate(self.slots) if row is None]
        placed = [self._row(request, slot) for request, slot in zip(requests, free, strict=False)]
        for row in placed:
            self.slots[row.slot] = row
        self._sampling = None
        return placed

    def release_finished(self) -> list[Row]:
        """Frees the slots of rows that have ended, and returns those rows."""
        finished = [row for row in self if row.finish_reason is not None]
        for row in finished:
            self.slots[row.slot] = None
            self._sampling = None
        return finished

    def sampling(self, device: torch.device) -> BatchSampling:
        """The sampling options of all slots, built anew only after a slot has changed hands."""
        if self._sampling is None:
            requests = [row.request if row else None for row in self.slots]
            self._sampling = BatchSampling.from_requests(requests, device)
        return self._sampling

    def _row(self, request: Request, slot: int) -> Row:
        return Row(request, slot, max_generated_tokens(request, self._context_length), self.max_draft_tokens)
