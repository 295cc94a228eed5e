"""Whatever drafts: in float32 every row's tokens are those of plain decoding, ragged, refilled, stopped and sampled."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch

from schemas.generation import Request
from tests.engine.conftest import FAMILIES, Ending, endings, make_requests, reference
from tests.engine.every_draft import ALL, SOURCES, engine_with, run, target
from tests.engine.test_cache import assert_slot_holds, fresh_cache
from workers.engine.prefill import longest_first, prefill
from workers.engine.speculative import speculative_round
from workers.engine.target import Target

pytestmark = pytest.mark.engine

OPTIONS = (
    {},
    {"temperature": 0.9, "top_p": 0.9},
    {"min_new_tokens": 3},
    {"repetition_penalty": 1.3, "logit_bias": ((40, 2.0),)},
    {"temperature": 1.2, "top_k": 9, "presence_penalty": 0.4, "frequency_penalty": 0.3},
    {"bad_words": ((40, 41), (50,)), "min_p": 0.05, "temperature": 0.7},
)
GREEDY = make_requests(9, 14, seed=22)


@cache
def mixed() -> list[Request]:
    """Rows of all options; every third with a stop text of two characters that it would say, and with another."""
    requests = [replace(row, **OPTIONS[i % len(OPTIONS)]) for i, row in enumerate(make_requests(9, 14, seed=21))]
    texts = {row_index: target().decode(e.token_ids) for row_index, e in reference(target(), requests).items()}
    return [
        replace(row, stop=("never said", texts[row.row_index][7:9])) if row.row_index % 3 == 0 else row
        for row in requests
    ]


@cache
def own(family: str = "llama") -> Target:
    """The target with two EOS tokens that rows do come to."""
    said = Counter(t for e in reference(target(family), GREEDY).values() for t in set(e.token_ids[4:12]))
    return target(family, torch.float32, *[token for token, _ in said.most_common(2)])


@cache
def expected(kind: str, family: str = "llama") -> dict[int, Ending]:
    return reference(own(family), mixed() if kind == "mixed" else GREEDY)


@pytest.mark.parametrize("batch_size", [1, 3, 8])
@pytest.mark.parametrize("source", ALL)
def test_rows_with_mixed_options_equal_plain_decoding(source: str, batch_size: int) -> None:
    completions = run(source, own(), mixed(), expected("mixed"), batch_size=batch_size)
    assert endings(completions) == expected("mixed")
    assert {c.finish_reason for c in completions} == {"stop", "length"}


@pytest.mark.parametrize("source", [*SOURCES])
def test_every_family_equals_plain_decoding(family: str, source: str) -> None:
    assert endings(run(source, own(family), GREEDY, family=family)) == expected("greedy", family)


@pytest.mark.parametrize("lengths", [(0, 1, 2, 4), (1, 3), (5,)])
@pytest.mark.parametrize("source", ["suffix", "noisy copy", "early exit", "other tokenizer by text", "auto"])
def test_any_ladder_of_draft_lengths_gives_the_same(source: str, lengths: tuple[int, ...]) -> None:
    assert endings(run(source, own(), mixed(), draft_lengths=lengths)) == expected("mixed")


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "top_k": 12}])
def test_a_draft_that_is_the_target_is_accepted_greedy_or_sampled(sampling: dict[str, float]) -> None:
    statistics = [c.statistics for c in run("same model", target(), make_requests(9, 16, seed=4, **sampling))]
    num_accepted = sum(row.num_accepted_draft_tokens for row in statistics)
    assert num_accepted > 0.95 * sum(row.num_draft_tokens for row in statistics)


@pytest.mark.parametrize("order", [lambda rows: rows[::-1], lambda rows: rows[5:] + rows[:5], lambda rows: rows[2:7]])
@pytest.mark.parametrize("source", ["ngram", "suffix", "noisy copy", "early exit"])
def test_order_and_batch_mates_change_no_row(source: str, order: Callable[[list[Request]], list[Request]]) -> None:
    chosen = order(mixed())
    found = endings(run(source, own(), chosen, batch_size=4))
    assert found == {request.row_index: expected("mixed")[request.row_index] for request in chosen}


@pytest.mark.parametrize("source", ["ngram", "noisy copy", "early exit", "other tokenizer by tokens"])
@pytest.mark.parametrize("family", FAMILIES)
def test_after_every_round_the_cache_equals_a_fresh_prefill(family: str, source: str) -> None:
    model, requests = target(family), make_requests(3, 12)
    batch = engine_with(source, model, requests, {}, family=family)._batch_for(requests)
    waiting = longest_first(requests)
    while waiting:
        prefill(batch, waiting)
    while batch.rows:
        speculative_round(batch)
        for row in batch.rows:
            held = [*row.request.prompt_token_ids, *row.generated][:-1]
            assert_slot_holds(batch.runner.cache, row.slot, fresh_cache(model, held), len(held))
