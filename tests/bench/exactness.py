"""Are the engine's tokens those of `model.generate()`, row by row? python -m tests.bench.exactness --prompts FILE

With any draft, in float32, every row has to be equal. At a mismatch the gap between the target's two best logits at
the first differing token is printed, since a gap near float32's rounding is a tie and anything else a defect.
"""

import sys
from typing import Any

import torch

from schemas.generation import Request
from schemas.job import DraftKind
from tests.bench.data import arguments, make_requests, read_conversations
from tests.demo import generate_alone, load_reference
from workers.devices import get_device
from workers.engine.engine import Engine
from workers.engine.models import load_target
from workers.engine.options import EngineOptions

DRAFTS: tuple[DraftKind, ...] = ("none", "ngram", "suffix", "early-exit", "auto")


def engine_tokens(engine: Engine, requests: list[Request]) -> list[list[int]]:
    completions = {c.row_index: list(c.token_ids) for c in engine.generate(requests)}
    return [completions[request.row_index] for request in requests]


@torch.inference_mode()
def describe_mismatch(model: Any, request: Request, ours: list[int], theirs: list[int]) -> str:
    """Where two outputs part, and how close the target's choice was there."""
    pairs = zip(ours, theirs, strict=False)
    place = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))
    context = torch.tensor([[*request.prompt_token_ids, *theirs[:place]]])
    best = model(context).logits[0, -1].topk(2).values
    return f"row {request.row_index}: differs at token {place}, gap of the top two logits {best[0] - best[1]:.2e}"


def main() -> int:
    options = arguments(__doc__ or "", per_category=4, max_new_tokens=48, batch_size=8)
    target = load_target(str(options.model), None, "float32", get_device("cpu"))
    conversations = read_conversations(options.prompts, options.per_category)
    requests = make_requests(target.tokenizer, conversations, options.max_new_tokens)
    reference = load_reference(options.model)
    expected = [generate_alone(reference, request) for request in requests]
    num_mismatches = 0
    for draft in DRAFTS:
        engine = Engine(
            target, get_device("cpu"), EngineOptions(batch_size=options.batch_size, draft=draft, exit_layer=8)
        )
        actual = engine_tokens(engine, requests)
        rows = zip(requests, actual, expected, strict=True)
        problems = [describe_mismatch(reference, r, ours, theirs) for r, ours, theirs in rows if ours != theirs]
        num_mismatches += len(problems)
        print(f"draft {draft}: {len(requests) - len(problems)} of {len(requests)} rows equal model.generate()")
        print("\n".join(problems), end="\n" if problems else "")
    return min(num_mismatches, 1)


if __name__ == "__main__":
    sys.exit(main())
