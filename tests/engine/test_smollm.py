"""On a real model in float32, with and without drafts, every row's tokens are those of `model.generate()` alone."""

import pytest

from schemas.generation import Request
from schemas.job import DraftKind
from tests.demo import demo_model, demo_requests, generate_alone, load_reference
from workers.devices import get_device
from workers.engine.engine import Engine
from workers.engine.models import load_target
from workers.engine.options import EngineOptions
from workers.engine.target import Target

pytestmark = [pytest.mark.engine, pytest.mark.smollm]
ROWS = (0, 9, 24, 30, 47, 50, 61)  # short and long ones, some that quote a text to be repeated
MAX_NEW_TOKENS = 16


@pytest.fixture(scope="module")
def target() -> Target:
    return load_target(str(demo_model()), None, "float32", get_device("cpu"))


@pytest.fixture(scope="module")
def requests(target: Target) -> list[Request]:
    return demo_requests(target.tokenizer, ROWS, MAX_NEW_TOKENS)


@pytest.fixture(scope="module")
def expected(requests: list[Request]) -> dict[int, list[int]]:
    model = load_reference()
    return {request.row_index: generate_alone(model, request) for request in requests}


@pytest.mark.parametrize("draft", ["none", "ngram"])
def test_smollm_rows_equal_generate_row_by_row(
    target: Target, requests: list[Request], expected: dict[int, list[int]], draft: DraftKind
) -> None:
    engine = Engine(target, get_device("cpu"), EngineOptions(batch_size=3, draft=draft, draft_lengths=(4,)))
    completions = list(engine.generate(requests))
    assert {c.row_index: list(c.token_ids) for c in completions} == expected
    num_accepted = sum(c.statistics.num_accepted_draft_tokens for c in completions)
    assert (num_accepted > 0) == (draft == "ngram")
