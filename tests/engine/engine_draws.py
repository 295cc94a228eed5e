"""What a whole engine draws for many rows that ask for the same, and whether it may be what the target draws."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from torch import Tensor

from schemas.generation import Request
from schemas.seeds import derive_row_seed
from tests.engine.conftest import make_engine, tiny_model
from tests.engine.distributions import bonferroni, chi_square
from tests.engine.enumeration import joint
from tests.engine.whole_rounds import WIDE_BUCKETS, conditionals
from workers.engine.drafts.guess import Guess
from workers.engine.drafts.none import NoDraft
from workers.engine.target import Target

BATCH_SIZE, K, NUM_TOKENS, VOCAB_SIZE = 64, 2, 4, 8
PROMPT = (1, 1, 1)
OPTIONS: dict[str, Any] = {"temperature": 1.3, "top_k": 6, "repetition_penalty": 1.2}


class CountingDraft(NoDraft):
    """Drafts that each token is followed by the next number."""

    def __init__(self) -> None:
        self._last = [0] * BATCH_SIZE

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        self._last[slot] = tokens[-1]

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        self._last[slot] = tokens[-1]

    def guess(self, limits: Sequence[int]) -> list[Guess]:
        rows = zip(self._last, limits, strict=True)
        return [Guess([(last + 1 + step) % VOCAB_SIZE for step in range(max(limit, 0))]) for last, limit in rows]


@cache
def tiny(family: str = "llama", vocab_size: int = VOCAB_SIZE) -> Target:
    return Target(tiny_model(family, vocab_size=vocab_size))


def requests(num_rows: int) -> list[Request]:
    return [Request(row, PROMPT, NUM_TOKENS, derive_row_seed(3, row), **OPTIONS) for row in range(num_rows)]


def engine_p_value(num_rows: int, draft: str, verification: str) -> float:
    """p-value of each token and each pair, after Bonferroni. draft: of the engine, or "counting"."""
    options = (
        {"draft_source": CountingDraft()} if draft == "counting" else {"draft": draft, "draft_model": tiny("gpt2")}
    )
    engine = make_engine(tiny(), BATCH_SIZE, k=K, verification=verification, policy=WIDE_BUCKETS, **options)
    said = np.array([completion.token_ids for completion in engine.generate(requests(num_rows))])
    expected = _expected().view([VOCAB_SIZE] * NUM_TOKENS)
    values = [chi_square(said[:, t], _marginal(expected, t)) for t in range(NUM_TOKENS)]
    pairs = said[:, :-1] * VOCAB_SIZE + said[:, 1:]
    return bonferroni(
        [*values, *(chi_square(pairs[:, t], _marginal(expected, t, t + 1)) for t in range(NUM_TOKENS - 1))]
    )


@cache
def _expected() -> Tensor:
    return joint(conditionals(tiny(), requests(1)[0], [], NUM_TOKENS))


def _marginal(expected: Tensor, *places: int) -> np.ndarray:
    others = [place for place in range(NUM_TOKENS) if place not in places]
    return expected.sum(others).flatten().numpy()
