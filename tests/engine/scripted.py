"""Draft sources that know how rows go on, and use it well, badly or half."""

import random
from collections.abc import Mapping, Sequence

from schemas.generation import Request
from tests.engine.conftest import VOCAB_SIZE, Ending
from workers.engine.drafts.guess import Guess


class OracleDraft:
    """Drafts exactly what the target will say, as far as it is allowed to."""

    def __init__(self, num_slots: int, requests: Sequence[Request], endings: Mapping[int, Ending]) -> None:
        self._scripts = {r.prompt_token_ids: endings[r.row_index].token_ids for r in requests}
        self._rest: list[list[int]] = [[] for _ in range(num_slots)]

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        self._rest[slot] = list(self._scripts[tuple(tokens[:-1])][1:])

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        rest = self._rest[slot]  # which a stop text may have cut inside these tokens
        assert rest[: len(tokens)] == list(tokens)[: len(rest)]
        del self._rest[slot][: len(tokens)]

    def finish(self, slot: int) -> None:
        self._rest[slot] = []

    def guess(self, limits: Sequence[int]) -> list[Guess]:
        return [Guess(self._spoil(rest[: max(n, 0)])) for rest, n in zip(self._rest, limits, strict=True)]

    def _spoil(self, tokens: list[int]) -> list[int]:
        return tokens


class WrongDraft(OracleDraft):
    """Drafts anything but what the target will say."""

    def _spoil(self, tokens: list[int]) -> list[int]:
        return [(token + 1) % VOCAB_SIZE for token in tokens]


class NoisyDraft(OracleDraft):
    """Drafts what the target will say with some tokens changed, in any number from none to all."""

    def __init__(self, num_slots: int, requests: Sequence[Request], endings: Mapping[int, Ending]) -> None:
        super().__init__(num_slots, requests, endings)
        self._random = random.Random(0)

    def _spoil(self, tokens: list[int]) -> list[int]:
        drafted = tokens[: self._random.randint(0, len(tokens))]
        return [self._random.randrange(VOCAB_SIZE) if self._random.random() < 0.3 else t for t in drafted]
