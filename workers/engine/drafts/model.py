"""Drafts from a model that shares tokens with the target: the same tokenizer, or the tokens that both have."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from workers.engine.constraints import Logits
from workers.engine.drafts.base import DraftRound, Drafts, DraftSource
from workers.engine.drafts.decoder import DraftDecoder
from workers.engine.drafts.early_exit import EarlyExitDecoder
from workers.engine.runner import ModelRunner
from workers.engine.sampling import BatchSampling, Probabilities, constrained, race, row_probabilities
from workers.engine.warm_up import PlannedShapes


class Decoder(Protocol):
    """Where logits come from: a DraftDecoder, or the target's own first layers."""

    def can_draft(self, slot: int, k: int) -> bool: ...

    def last_logits(self, k: int) -> tuple[Logits, Tensor]: ...

    def step(self, tokens: Tensor, positions: Tensor) -> Logits: ...


class TokenDrafting:
    """Draws k tokens a row, one after another, in the target's vocabulary and without waiting for any of them."""

    def __init__(self, decoder: Decoder, vocab_size: int, temperature: float | None) -> None:
        """vocab_size: of the target. temperature: to draw with; None is each row's own."""
        self._decoder, self._vocab_size, self._temperature = decoder, vocab_size, temperature

    def propose(self, asked: DraftRound) -> Drafts:
        able = [self._decoder.can_draft(slot, asked.k) for slot in range(len(asked.limits))]
        num_drafted = [limit if can else 0 for limit, can in zip(asked.limits, able, strict=True)]
        device = asked.generated_index.device
        if not any(num_drafted):
            return Drafts.nothing(len(num_drafted), device)
        tokens, probs = self._draw_all(asked, device)
        return Drafts(tokens, num_drafted, [0] * len(num_drafted), probs)

    def to_target(self, logits: Logits) -> Logits:
        """The draft's logits (B, 1, Vd) over the target's vocabulary: padded, or without the draft's own padding."""
        missing = self._vocab_size - logits.shape[-1]
        if missing > 0:
            return Logits(torch.nn.functional.pad(logits, (0, missing), value=float("-inf")))
        return Logits(logits[..., : self._vocab_size])

    def to_draft(self, tokens: Tensor) -> Tensor:
        """The draft's ids of drafted tokens (B, 1)."""
        return tokens

    def _draw_all(self, asked: DraftRound, device: torch.device) -> tuple[Tensor, Probabilities | None]:
        sampling = asked.sampling.at_temperature(self._temperature)
        keeps_probs = asked.keeps_probs and not sampling.greedy
        drafted = torch.zeros(len(asked.limits), 0, dtype=torch.int64, device=device)
        all_probs: list[Tensor] = []
        logits, position = self._decoder.last_logits(asked.k)
        for step in range(asked.k):
            token, probs = self._draw(self.to_target(logits), sampling, asked, drafted)
            drafted = torch.cat([drafted, token], dim=1)
            all_probs.append(probs)
            if step + 1 < asked.k:
                position = position + 1
                logits = self._decoder.step(self.to_draft(token), position)
        return drafted, Probabilities(torch.cat(all_probs, dim=1)) if keeps_probs else None

    def _draw(
        self, logits: Logits, sampling: BatchSampling, asked: DraftRound, drafted: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(tokens (B, 1), what they were drawn from (B, 1, V)) after the drafted ones (B, step)."""
        step = drafted.shape[1]
        context = asked.context(drafted) if asked.context else None
        allowed = constrained(logits, sampling, asked.generated_index[:, step : step + 1], context)
        if sampling.greedy:
            return allowed.argmax(-1), allowed
        assert asked.noise is not None
        probs = row_probabilities(allowed, sampling)
        return race(probs, asked.noise[:, step : step + 1]), probs


class ModelDraft(TokenDrafting, DraftSource):
    """The draft source `model`, for a model with the target's tokenizer. Sizes of padded vocabularies may differ."""

    name = "model"
    is_free = False

    def __init__(self, decoder: DraftDecoder, vocab_size: int, temperature: float | None = None) -> None:
        super().__init__(decoder, vocab_size, temperature)
        self._rows = decoder
        self._num_stepped = 0

    def begin(self, runner: ModelRunner, max_length: int) -> None:
        self._rows.begin(max_length)

    def planned_shapes(self) -> list[PlannedShapes]:
        return self._rows.planned_shapes()

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        self._rows.start(slot, tokens)

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        # All but the last were drafted, and all drafted tokens but the k-th were stepped over.
        self._rows.extend(slot, tokens, num_known=max(min(len(tokens) - 1, self._num_stepped), 0))

    def finish(self, slot: int) -> None:
        self._rows.finish(slot)

    def propose(self, asked: DraftRound) -> Drafts:
        self._num_stepped = asked.k - 1
        return super().propose(asked)


class EarlyExitDraft(TokenDrafting, DraftSource):
    """The draft source `early-exit`."""

    name = "early-exit"
    is_free = False

    def __init__(self, decoder: EarlyExitDecoder, vocab_size: int, temperature: float | None = None) -> None:
        super().__init__(decoder, vocab_size, temperature)
        self._rows = decoder

    def begin(self, runner: ModelRunner, max_length: int) -> None:
        self._rows.begin(runner)

    def planned_shapes(self) -> list[PlannedShapes]:
        return self._rows.planned_shapes()

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        self._rows.start(slot, tokens)

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        self._rows.extend(slot, tokens)

    def finish(self, slot: int) -> None:
        self._rows.finish(slot)
