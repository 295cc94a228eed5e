"""One round of a real batch, with a row for every first token and every draft, and all that its rows may commit.

Rows draw what their script says: noise is made for that, and a row's script is found by its seed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from schemas.generation import Request
from tests.engine.conftest import make_batch
from tests.engine.enumeration import (
    Outcomes,
    all_sequences,
    committed,
    joint,
    outcomes,
    recorded_races,
    total_variation,
)
from workers.engine import sampling, speculative
from workers.engine.buckets import BucketPolicy
from workers.engine.constraints import Context
from workers.engine.drafts import model as model_drafts
from workers.engine.drafts.guess import Guess
from workers.engine.drafts.none import NoDraft
from workers.engine.noise import TARGET
from workers.engine.sampling import BatchSampling, Probabilities, constrained, row_probabilities
from workers.engine.target import Target

WIDE_BUCKETS = BucketPolicy(prefill_step=8, prefill_rows=(1, 4, 16, 64), kv_step=16)


@dataclass(frozen=True)
class EveryDraft:
    """A batch of R rows: for each of the requests V^(1 + k), one for each first token and draft."""

    target: Target
    requests: Sequence[Request]
    k: int

    @property
    def scripts(self) -> Tensor:
        """Each row's first token and draft, (R, 1 + k)."""
        return all_sequences(self.target.vocab_size, 1 + self.k).repeat(len(self.requests), 1)

    @property
    def rows(self) -> list[Request]:
        num_each = self.target.vocab_size ** (1 + self.k)
        asked = [request for request in self.requests for _ in range(num_each)]
        return [replace(request, row_index=row, seed=row) for row, request in enumerate(asked)]


class FixedDraft(NoDraft):
    """Drafts the same for a slot in every round."""

    def __init__(self, drafts: Sequence[Sequence[int]]) -> None:
        self._drafts = drafts

    def guess(self, limits: Sequence[int]) -> list[Guess]:
        return [Guess(list(draft[: max(limit, 0)])) for draft, limit in zip(self._drafts, limits, strict=True)]


class _Run(NamedTuple):
    """first: (R,), tokens that rows began with. drafted: (R, k). mass: (R,), how likely each row's script was to be
    drafted; None where drafts are certain."""

    first: Tensor
    drafted: Tensor
    mass: Tensor | None
    found: Outcomes


def fixed_draft_error(every: EveryDraft) -> float:
    """Total variation from the target's own distribution, for the worst request, first token and draft."""
    return max(_errors(every, _run(every, draft_source=FixedDraft(every.scripts[:, 1:].tolist()))))


def model_draft_error(every: EveryDraft, draft_model: Target, draft_temperature: float | None = None) -> float:
    """The same for drafts that a model draws."""
    return max(_errors(every, _run(every, draft="model", draft_model=draft_model, draft_temperature=draft_temperature)))


@torch.inference_mode()
def conditionals(target: Target, request: Request, generated: Sequence[int], num_tokens: int) -> list[Probabilities]:
    """What plain decoding draws the next tokens from, each after all sequences of those before it."""
    known, vocab_size = [*request.prompt_token_ids, *generated], target.vocab_size
    found = []
    for place in range(num_tokens):
        rest = all_sequences(vocab_size, place)
        tokens = torch.cat([torch.tensor(known).expand(len(rest), -1), rest], dim=1)
        options = BatchSampling.from_requests([request] * len(rest), target.device, vocab_size)
        lengths = torch.tensor([[tokens.shape[1]], [len(request.prompt_token_ids)]]).repeat(1, len(rest))
        index = torch.full((len(rest), 1), len(generated) + place)
        logits = target.model(tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits[:, -1:]
        allowed = constrained(logits, options, index, Context(tokens, lengths[0], lengths[1], tokens[:, :0]))
        found.append(Probabilities(row_probabilities(allowed, options).view([vocab_size] * (place + 1))))
    return found


@torch.inference_mode()
def _run(every: EveryDraft, **options: Any) -> _Run:
    options |= {"k": every.k, "batch_size": len(every.rows), "verification": "rejection", "policy": WIDE_BUCKETS}
    with _drawing(every.scripts), recorded_races(model_drafts) as races:
        batch = make_batch(every.target, every.rows, **options)
        proposal = speculative.propose(batch)
    logits = speculative.verify(batch, proposal)
    with patch.object(speculative, "row_probabilities", cache(row_probabilities)):  # the same logits every time
        found = outcomes(lambda: speculative.accept(batch, proposal, logits), len(every.rows), every.k)
    first, drafted = proposal.input_ids[:, 0], proposal.input_ids[:, 1:]
    return _Run(first, drafted, _mass(every.scripts[:, 1:], races.weights), found)


@contextmanager
def _drawing(scripts: Tensor) -> Iterator[None]:
    """Rows draw what their scripts (R, L) say, where it has any mass. A row's number is its seed."""

    def noise(seeds: Tensor, index: Tensor, vocab_size: int, stream: int = TARGET) -> Tensor:
        wanted = scripts[seeds[:, :1].long(), index]
        return torch.where(torch.nn.functional.one_hot(wanted, vocab_size) > 0, 1e-30, 1e30)

    with patch.object(sampling, "exponential_noise", noise), patch.object(speculative, "exponential_noise", noise):
        yield


def _mass(drafted: Tensor, weights: Sequence[Tensor]) -> Tensor | None:
    if not weights:
        return None
    drawn = torch.cat([part / part.sum(-1, keepdim=True) for part in weights], dim=1)
    return drawn.double().gather(-1, drafted[..., None]).prod(1)[:, 0]


def _errors(every: EveryDraft, run: _Run) -> Iterator[float]:
    """For each request and first token that it can draw, and for each draft alone where drafts are certain."""
    num_drafts = every.target.vocab_size**every.k
    for begin in range(0, len(every.rows), num_drafts):
        block, first = slice(begin, begin + num_drafts), int(every.scripts[begin, 0])
        if int(run.first[begin]) == first:
            plain = conditionals(every.target, every.rows[begin], [first], every.k + 1)
            rows = committed(run.drafted[block], Outcomes(*(part[block] for part in run.found)), plain)
            sums = rows if run.mass is None else (run.mass[block] @ rows)[None]
            yield from (total_variation(row, joint(plain)) for row in sums)
