"""Slots change hands, and the steps of a round do what their names say."""

from collections.abc import Sequence

import pytest
import torch

from schemas.generation import Request
from tests.engine.conftest import make_batch, tiny_target
from workers.engine.drafts.guess import Guess
from workers.engine.drafts.none import NoDraft
from workers.engine.rows import RowLimits, Rows
from workers.engine.speculative import propose
from workers.engine.verification import accept_coupled

pytestmark = pytest.mark.engine

CPU = torch.device("cpu")


def make_rows(num_slots: int = 3) -> Rows:
    return Rows(num_slots, RowLimits(frozenset({9}), context_length=20, vocab_size=10, decode=str))


def request(row_index: int, temperature: float = 0.0, prompt: tuple[int, ...] = (1, 2, 3)) -> Request:
    return Request(row_index, prompt, max_new_tokens=4, seed=row_index, temperature=temperature)


def test_requests_take_the_lowest_free_slots() -> None:
    rows = make_rows()
    assert not rows and rows.num_free == 3
    first, second = rows.place([request(0), request(1)])
    first.keep([9])
    assert rows.release_finished() == [first]
    placed = rows.place([request(2), request(3)])
    assert [(row.slot, row.request.row_index) for row in (second, *placed)] == [(1, 1), (0, 2), (2, 3)]
    assert rows.num_free == 0 and [row.request.row_index for row in rows] == [2, 1, 3]


def test_sampling_options_follow_the_slots() -> None:
    rows = make_rows()
    assert rows.sampling(CPU).greedy
    (warm,) = rows.place([request(0, temperature=0.5)])
    assert rows.sampling(CPU).temperature.tolist() == [0.5, 0, 0]
    rows.place([request(1, temperature=2.0)])
    assert rows.sampling(CPU).temperature.tolist() == [0.5, 2, 0]
    warm.keep([9])
    rows.release_finished()
    assert rows.sampling(CPU).temperature.tolist() == [0, 2, 0]
    assert rows.sampling(CPU) is rows.sampling(CPU)


def test_windows_are_laid_out_by_slot() -> None:
    requests = [Request(i, prompt, max_new_tokens=9, seed=i) for i, prompt in enumerate([(1, 2, 3), (5, 6)])]
    guesses = {(1, 2, 3): [4, 5, 6], (5, 6): [3]}
    batch = make_batch(tiny_target("llama"), requests, k=3, draft_source=Told(guesses))
    first = [row.generated[0] for row in batch.rows]
    proposal = propose(batch)
    assert proposal.input_ids.tolist() == [[first[0], 4, 5, 6], [first[1], 3, 0, 0], [0, 0, 0, 0]]
    assert proposal.positions.tolist() == [[3, 4, 5, 6], [2, 3, 4, 5], [0, 1, 2, 3]]
    assert proposal.generated_index.tolist() == [[1, 2, 3, 4], [1, 2, 3, 4], [0, 1, 2, 3]]
    assert proposal.num_drafted.tolist() == [3, 1, 0]


class Told(NoDraft):
    """Guesses what it was told for each prompt."""

    def __init__(self, guesses: dict[tuple[int, ...], list[int]]) -> None:
        self._guesses, self._prompts = guesses, {}

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        self._prompts[slot] = tuple(tokens[:-1])

    def guess(self, limits: Sequence[int]) -> list[Guess]:
        return [Guess(self._guesses.get(self._prompts.get(slot, ()), [])) for slot in range(len(limits))]


@pytest.mark.parametrize(
    ("drafted", "num_drafted", "target", "num_accepted"),
    [
        ([4, 5, 6], 3, [4, 5, 6, 7], 3),
        ([4, 5, 6], 3, [4, 5, 7, 6], 2),
        ([4, 5, 6], 3, [3, 5, 6, 7], 0),
        ([4, 5, 6], 3, [4, 0, 6, 7], 1),
        ([4, 0, 0], 1, [4, 0, 0, 0], 1),  # padding is not a draft, also where it agrees
        ([0, 0, 0], 0, [0, 0, 0, 0], 0),
        ([], 0, [8], 0),
    ],
)
def test_drafted_tokens_are_accepted_up_to_the_first_other_one(
    drafted: list[int], num_drafted: int, target: list[int], num_accepted: int
) -> None:
    accepted = accept_coupled(torch.tensor([drafted]).long(), torch.tensor([num_drafted]), torch.tensor([target]))
    assert accepted.num_accepted.tolist() == [num_accepted]
    assert accepted.tokens.tolist() == [target]
