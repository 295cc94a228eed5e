"""Slots change hands, and the steps of a round do what their names say."""

import pytest
import torch

from schemas.generation import Request
from workers.engine.rows import Rows
from workers.engine.speculative import Proposal, accept, lay_out

pytestmark = pytest.mark.engine

CPU = torch.device("cpu")


def make_rows(num_slots: int = 3) -> Rows:
    return Rows(num_slots, max_draft_tokens=3, eos_token_ids=frozenset({9}), context_length=20)


def request(row_index: int, temperature: float = 0.0, prompt: tuple[int, ...] = (1, 2, 3)) -> Request:
    return Request(row_index, prompt, max_new_tokens=4, seed=row_index, temperature=temperature)


def test_requests_take_the_lowest_free_slots() -> None:
    rows = make_rows()
    assert not rows and rows.num_free == 3
    first, second = rows.place([request(0), request(1)])
    first.keep([9], rows.eos_token_ids)
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
    warm.keep([9], rows.eos_token_ids)
    rows.release_finished()
    assert rows.sampling(CPU).temperature.tolist() == [0, 2, 0]
    assert rows.sampling(CPU) is rows.sampling(CPU)


def test_windows_are_laid_out_by_slot() -> None:
    rows = make_rows()
    (_, row) = rows.place([request(0), request(1, prompt=(5, 6))])
    for placed, tokens in zip(rows, ([7], [7, 8]), strict=True):
        placed.keep(tokens, rows.eos_token_ids)
    assert row.length == 4 and row.num_draftable == 1
    assert lay_out(rows, [[4, 5, 6], [3], []], window=4).tolist() == [
        [3, 1, 3, 7, 4, 5, 6],
        [3, 2, 1, 8, 3, 0, 0],
        [0, 0, 0, 0, 0, 0, 0],
    ]


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
    unused = torch.zeros(0)
    proposal = Proposal([drafted], torch.tensor([[1, *drafted]]), unused, unused, torch.tensor([num_drafted]), 0)
    accepted = accept(proposal, torch.tensor([target]))
    assert accepted.num_accepted.tolist() == [num_accepted]
    assert accepted.target_tokens.tolist() == [target]
