"""Drafts from a model with another tokenizer: it reads rows by text, and its drafts come back by text or by token.

Universal assisted generation and token-level intersection (Timor et al. 2025, arXiv 2502.05202). Neither model is
changed; the draft's logits are masked where the target lacks a token.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.engine.constraints import Logits
from workers.engine.drafts.base import DraftRound, Drafts, DraftSource
from workers.engine.drafts.decoder import DraftDecoder
from workers.engine.drafts.guess import NO_GUESS, Guess
from workers.engine.drafts.model import TokenDrafting
from workers.engine.drafts.realign import num_common
from workers.engine.drafts.translation import Bridge, TranslatedRow
from workers.engine.drafts.vocabulary import NO_TOKEN
from workers.engine.planner.job import MOST_TOKENS_RATIO
from workers.engine.runner import ModelRunner
from workers.engine.warm_up import PlannedShapes


class TranslatedRows:
    """The target's rows in the draft's tokens, in step with the draft's cache."""

    def __init__(self, decoder: DraftDecoder, bridge: Bridge) -> None:
        self.decoder, self.bridge = decoder, bridge
        self._rows: dict[int, TranslatedRow] = {}

    def begin(self, max_length: int) -> None:
        self._rows = {}
        self.decoder.begin(MOST_TOKENS_RATIO * max_length)

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        self._rows[slot] = self.bridge.row(tokens)
        self.decoder.start(slot, self._rows[slot].ids)

    def extend(self, slot: int, tokens: Sequence[int], stepped: Sequence[int]) -> None:
        """stepped: drafted ids, the draft's, that its cache has after the row as it was."""
        row, num_before = self._rows[slot], len(self.decoder.tokens(slot))
        unchanged = row.extend(tokens)
        gained = row.ids[unchanged:]
        num_known = num_common(gained, stepped) if unchanged == num_before else 0
        self.decoder.rewrite(slot, unchanged, gained, num_known)

    def finish(self, slot: int) -> None:
        del self._rows[slot]
        self.decoder.finish(slot)

    def row(self, slot: int) -> TranslatedRow:
        return self._rows[slot]


class TextDraft(DraftSource):
    """The draft source `model` with another tokenizer, by text: drafts greedily in its own vocabulary."""

    name = "model"
    is_free = False

    def __init__(self, decoder: DraftDecoder, bridge: Bridge) -> None:
        self._rows, self._decoder = TranslatedRows(decoder, bridge), decoder
        self._stepped: dict[int, list[int]] = {}

    def begin(self, runner: ModelRunner, max_length: int) -> None:
        self._rows.begin(max_length)

    def planned_shapes(self) -> list[PlannedShapes]:
        return self._rows.decoder.planned_shapes()

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        self._rows.start(slot, tokens)

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        self._rows.extend(slot, tokens, self._stepped.pop(slot, ()))

    def finish(self, slot: int) -> None:
        self._rows.finish(slot)

    def propose(self, asked: DraftRound) -> Drafts:
        device = asked.generated_index.device
        able = [slot for slot, n in enumerate(asked.limits) if n and self._decoder.can_draft(slot, asked.k)]
        if not able:
            return Drafts.nothing(len(asked.limits), device)
        drafted = self._draw_all(asked.k).tolist()  # the round's second wait
        guesses = [NO_GUESS] * len(asked.limits)
        for slot in able:
            self._stepped[slot] = drafted[slot][:-1]
            target_ids = self._rows.bridge.back(self._rows.row(slot), drafted[slot])
            guesses[slot] = Guess(target_ids[: asked.limits[slot]])
        return Drafts.of_guesses(guesses, asked.k, device)

    def _draw_all(self, k: int) -> Tensor:
        """(B, k) of the draft's own ids."""
        logits, position = self._decoder.last_logits(k)
        drafted = [logits.argmax(-1)]
        while len(drafted) < k:
            position = position + 1
            drafted.append(self._decoder.step(drafted[-1], position).argmax(-1))
        return torch.cat(drafted, dim=1)


class SharedTokensDraft(TokenDrafting, DraftSource):
    """The draft source `model` with another tokenizer, by the tokens that both have: drawn in the target's ids."""

    name = "model"
    is_free = False

    def __init__(
        self,
        decoder: DraftDecoder,
        bridge: Bridge,
        target_to_draft: NDArray[np.int64],
        vocab_size: int,
        temperature: float | None = None,
    ) -> None:
        """target_to_draft: of `shared_vocabulary`. vocab_size: of the target."""
        super().__init__(decoder, vocab_size, temperature)
        self._rows, self._num_stepped = TranslatedRows(decoder, bridge), 0
        ids = torch.full((vocab_size,), NO_TOKEN)
        size = min(vocab_size, len(target_to_draft))
        ids[:size] = torch.from_numpy(target_to_draft[:size])
        self._host_ids: list[int] = ids.tolist()
        self._draft_ids = ids.to(decoder.model.device)

    def begin(self, runner: ModelRunner, max_length: int) -> None:
        self._rows.begin(max_length)

    def planned_shapes(self) -> list[PlannedShapes]:
        return self._rows.decoder.planned_shapes()

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        self._rows.start(slot, tokens)

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        accepted = [self._host_ids[token] for token in tokens[:-1]]
        self._rows.extend(slot, tokens, accepted[: self._num_stepped])

    def finish(self, slot: int) -> None:
        self._rows.finish(slot)

    def propose(self, asked: DraftRound) -> Drafts:
        self._num_stepped = asked.k - 1
        limits = [n if n and self._ends_whole(slot) else 0 for slot, n in enumerate(asked.limits)]
        return super().propose(asked.with_limits(limits))

    def to_target(self, logits: Logits) -> Logits:
        """The draft's logits (B, 1, Vd) of the target's tokens, -inf where the draft lacks one."""
        known = logits[..., self._draft_ids.clamp(min=0)]
        return Logits(known.masked_fill(self._draft_ids == NO_TOKEN, float("-inf")))

    def to_draft(self, tokens: Tensor) -> Tensor:
        return self._draft_ids[tokens]

    def _ends_whole(self, slot: int) -> bool:
        """Whether the draft has read all of the row: it has not where that ends inside a character."""
        return not self._rows.row(slot).source.pending
