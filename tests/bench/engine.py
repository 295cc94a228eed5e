"""The engine beside transformers' batched generate, on one model and the same prompts: python -m tests.bench.engine

generate() gets batches of rows sorted by length, padded on the left. All take turns, run by run; medians are printed.
"""

import statistics
from dataclasses import dataclass
from typing import Any

import torch

from schemas.generation import Request
from tests.bench.data import arguments, make_requests, read_conversations
from tests.bench.timing import median_ratio, side_by_side
from tests.demo import load_reference
from workers.devices import get_device
from workers.engine.engine import Engine
from workers.engine.models import load_target
from workers.engine.options import EngineOptions


@dataclass
class EngineRun:
    """One way to run the engine; the figures are those of its last run."""

    name: str
    engine: Engine
    requests: list[Request]
    num_tokens: int = 0
    forward_seconds: float = 0.0

    def __call__(self) -> None:
        before = self.engine.forward_seconds
        self.num_tokens = sum(len(c.token_ids) for c in self.engine.generate(self.requests))
        self.forward_seconds = self.engine.forward_seconds - before


@dataclass
class GenerateRun:
    """`model.generate()` over batches of rows of like length, padded on the left."""

    model: Any
    requests: list[Request]
    batch_size: int
    name: str = "model.generate()"
    num_tokens: int = 0

    @torch.inference_mode()
    def __call__(self) -> None:
        by_length = sorted(self.requests, key=lambda request: len(request.prompt_token_ids))
        self.num_tokens = 0
        for first in range(0, len(by_length), self.batch_size):
            self.num_tokens += self._generate(by_length[first : first + self.batch_size])

    def _generate(self, requests: list[Request]) -> int:
        width = max(len(r.prompt_token_ids) for r in requests)
        padded = torch.tensor([[0] * (width - len(r.prompt_token_ids)) + [*r.prompt_token_ids] for r in requests])
        widths = torch.tensor([len(r.prompt_token_ids) for r in requests])
        mask = (torch.arange(width) >= width - widths[:, None]).long()
        output = self.model.generate(
            padded, attention_mask=mask, max_new_tokens=requests[0].max_new_tokens, do_sample=False
        )
        return sum(self._length(row) for row in output[:, width:].tolist())

    def _length(self, tokens: list[int]) -> int:
        """Tokens up to the row's EOS, with it: what follows is padding."""
        eos = self.model.generation_config.eos_token_id
        eos_ids = set(eos if isinstance(eos, list) else [eos])
        return next((i + 1 for i, token in enumerate(tokens) if token in eos_ids), len(tokens))


def main() -> None:
    options = arguments(__doc__ or "", per_category=3, max_new_tokens=64, batch_size=8, num_draft_tokens=2, num_runs=3)
    device = get_device("cpu")
    target = load_target(str(options.model), None, "float32", device)
    conversations = read_conversations(options.prompts, options.per_category)
    requests = make_requests(target.tokenizer, conversations, options.max_new_tokens)
    size, k = options.batch_size, options.num_draft_tokens
    runs: list[EngineRun | GenerateRun] = [
        GenerateRun(load_reference(options.model), requests, size),
        EngineRun("engine, no drafts", Engine(target, device, EngineOptions(size, "none")), requests),
        EngineRun("engine, ngram", Engine(target, device, EngineOptions(size, "ngram")), requests),
        EngineRun(f"engine, ngram k={k}", Engine(target, device, EngineOptions(size, "ngram", (k,))), requests),
    ]
    seconds = side_by_side(runs, options.num_runs)
    print(f"{len(requests)} prompts, {sum(len(r.prompt_token_ids) for r in requests)} prompt tokens, batch {size}")
    print(f"{'':22}{'tokens':>8}{'tokens/s':>10}{'over generate':>15}{'share in forwards':>19}")
    for run, taken in zip(runs, seconds, strict=True):
        rates = statistics.median(run.num_tokens / s for s in taken)
        share = f"{run.forward_seconds / taken[-1]:19.3f}" if isinstance(run, EngineRun) else ""
        print(f"{run.name:22}{run.num_tokens:8}{rates:10.1f}{median_ratio(seconds[0], taken):15.2f}{share}")


if __name__ == "__main__":
    main()
