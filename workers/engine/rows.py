"""The rows that are being generated, each in its slot."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from schemas.generation import Completion, FinishReason, Request
from workers.engine.constraints import Context, ending_ids
from workers.engine.limits import max_generated_tokens
from workers.engine.sampling import BatchSampling
from workers.engine.statistics import RoundOfRow, cut_run, row_statistics
from workers.engine.stops import Decode, StopTexts


@dataclass(frozen=True, slots=True)
class RowLimits:
    """What decides where rows end. decode: token ids to text, for stop texts."""

    eos_token_ids: frozenset[int]
    context_length: int
    vocab_size: int
    decode: Decode


class Row:
    """One row in a slot: what it has generated, and how much more it may."""

    __slots__ = (
        "_ending_ids",
        "_rounds",
        "_stops",
        "finish_reason",
        "generated",
        "max_tokens",
        "request",
        "slot",
        "text",
    )

    def __init__(self, request: Request, slot: int, limits: RowLimits) -> None:
        self.request, self.slot = request, slot
        self.max_tokens = max_generated_tokens(request, limits.context_length)
        self.generated: list[int] = []
        self.finish_reason: FinishReason | None = None
        self.text: str | None = None
        self._ending_ids = frozenset(ending_ids(request, limits.eos_token_ids))
        self._stops = StopTexts(request.stop, limits.decode, request.min_new_tokens) if request.stop else None
        self._rounds: list[RoundOfRow] = []

    @property
    def length(self) -> int:
        """Tokens of prompt and output."""
        return len(self.request.prompt_token_ids) + len(self.generated)

    @property
    def num_draftable(self) -> int:
        """Drafted tokens that a round can still keep: the target's own token comes after them."""
        return self.max_tokens - len(self.generated) - 1

    def keep(self, tokens: Sequence[int]) -> list[int]:
        """Appends tokens up to the row's end, where it sets finish_reason; returns those appended.

        A stop text may begin in earlier tokens, which are then taken back.
        """
        num_kept, self.finish_reason = cut_run(tokens, self._ending_ids, self.max_tokens - len(self.generated))
        kept = list(tokens[:num_kept])
        self.generated += kept
        if self._stops is not None and (cut := self._stops.cut(self.generated, num_kept)):
            self.finish_reason, self.text = "stop", cut.text
            del self.generated[cut.num_tokens :]
        return kept

    def keep_round(self, tokens: Sequence[int], num_drafted: int) -> list[int]:
        """`keep`, for the accepted drafted tokens of one round and the target's own after them."""
        self._rounds.append(RoundOfRow(num_drafted, len(tokens) - 1))
        return self.keep(tokens)

    def completion(self, max_draft_tokens: int) -> Completion:
        assert self.finish_reason is not None
        statistics = row_statistics(self._rounds, len(self.generated), max_draft_tokens)
        row_index, sample_index = self.request.key
        return Completion(
            row_index, tuple(self.generated), self.finish_reason, statistics, sample_index=sample_index, text=self.text
        )


class Rows:
    """B slots, each with a row or free, and the rows' sampling options on the device."""

    def __init__(self, num_slots: int, limits: RowLimits) -> None:
        self.slots: list[Row | None] = [None] * num_slots
        self.limits = limits
        self._sampling: BatchSampling | None = None

    def __iter__(self) -> Iterator[Row]:
        return (row for row in self.slots if row is not None)

    def __bool__(self) -> bool:
        return any(row is not None for row in self.slots)

    @property
    def num_free(self) -> int:
        return self.slots.count(None)

    @property
    def num_draftable(self) -> list[int]:
        """Of each slot, 0 for a free one."""
        return [row.num_draftable if row else 0 for row in self.slots]

    def place(self, requests: Sequence[Request]) -> list[Row]:
        """Puts requests into free slots, lowest first."""
        free = [slot for slot, row in enumerate(self.slots) if row is None]
        placed = [Row(request, slot, self.limits) for request, slot in zip(requests, free, strict=False)]
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
            limits = self.limits
            self._sampling = BatchSampling.from_requests(requests, device, limits.vocab_size, limits.eos_token_ids)
        return self._sampling


def context_of(rows: Sequence[Row | None], length: int, drafted: Tensor) -> Context:
    """What the rows' constraints look at. length: at least that of each row. drafted: (B, P), on their device."""
    layout = np.zeros((len(rows), 2 + length), dtype=np.int64)
    for index, row in enumerate(rows):
        if row is not None:
            prompt = row.request.prompt_token_ids
            layout[index, : 2 + row.length] = [row.length, len(prompt), *prompt, *row.generated]
    moved = torch.from_numpy(layout).to(drafted.device)
    return Context(moved[:, 2:], moved[:, 0], moved[:, 1], drafted)
