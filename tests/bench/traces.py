"""What each draft source would have guessed at every place of known completions: recorded once, replayed at will."""

from collections.abc import Sequence

import torch

from schemas.generation import Request
from tests.bench.replay import Spot, Trace, trace_row
from workers.devices.base import Device
from workers.engine.drafts.base import DraftRound, DraftSource, HostSource
from workers.engine.engine import Engine
from workers.engine.options import EngineOptions
from workers.engine.sampling import BatchSampling
from workers.engine.target import Target

Completions = dict[int, tuple[int, ...]]
MAX_LENGTH = 8


def plain_completions(target: Target, device: Device, requests: Sequence[Request], batch_size: int) -> Completions:
    """What the target says, which no draft changes."""
    engine = Engine(target, device, EngineOptions(batch_size, "none"))
    return {c.row_index: c.token_ids for c in engine.generate(requests)}


def host_traces(source: HostSource, requests: Sequence[Request], completions: Completions) -> dict[int, Trace]:
    """Rows one after another, so that a source that remembers finished rows has those before."""
    return {
        request.row_index: trace_row(source, request.prompt_token_ids, completions[request.row_index], MAX_LENGTH)
        for request in requests
    }


@torch.inference_mode()
def model_traces(
    source: DraftSource, engine: Engine, requests: Sequence[Request], completions: Completions
) -> dict[int, Trace]:
    """Of a source with a model. engine: the target's, whose cache holds the whole rows, as early exit needs it."""
    size, traces = engine.options.batch_size, {}
    for first in range(0, len(requests), size):
        rows = requests[first : first + size]
        traces |= _batch_traces(source, engine, rows, completions)
    return traces


def _batch_traces(
    source: DraftSource, engine: Engine, rows: Sequence[Request], completions: Completions
) -> dict[int, Trace]:
    whole = [(*row.prompt_token_ids, *completions[row.row_index]) for row in rows]
    runner = engine._runner_for([len(tokens) for tokens in whole], [len(tokens) + MAX_LENGTH for tokens in whole])
    source.begin(runner, max(map(len, whole)) + MAX_LENGTH)
    for slot, row in enumerate(rows):
        _fill_cache(runner, slot, whole[slot], engine)
        source.start(slot, whole[slot][: len(row.prompt_token_ids) + 1])
    spots: list[list[Spot]] = [[] for _ in rows]
    for place in range(1, max(len(completions[row.row_index]) for row in rows)):
        live = [slot for slot, row in enumerate(rows) if place < len(completions[row.row_index])]
        guesses = _propose(source, engine, live)
        for slot in live:
            rest = completions[rows[slot].row_index][place:]
            spots[slot].append(_spot(guesses[slot], rest))
            source.extend(slot, rest[:1])
    for slot in range(len(rows)):
        source.finish(slot)
    return {row.row_index: trace for row, trace in zip(rows, spots, strict=True)}


def _fill_cache(runner, slot: int, tokens: Sequence[int], engine: Engine) -> None:
    length = engine.buckets.prefill_length(len(tokens))
    padded = torch.tensor([[*tokens, *[0] * (length - len(tokens))]])
    runner.prefill(padded, torch.tensor([slot]), torch.tensor([len(tokens) - 1]))


def _propose(source: DraftSource, engine: Engine, live: Sequence[int]) -> list[list[int]]:
    size = engine.options.batch_size
    asked = DraftRound(
        k=MAX_LENGTH,
        limits=[MAX_LENGTH if slot in live else 0 for slot in range(size)],
        sampling=BatchSampling.from_requests([None] * size, engine.target.device, engine.target.vocab_size),
        generated_index=torch.zeros(size, MAX_LENGTH + 1, dtype=torch.int64),
        noise=None,
        keeps_probs=False,
        context=None,
        settle=lambda guesses: MAX_LENGTH,
    )
    drafts = source.propose(asked)
    tokens = drafts.tokens.tolist()
    return [row[:n] for row, n in zip(tokens, drafts.num_drafted, strict=True)]


def _spot(guess: Sequence[int], rest: Sequence[int]) -> Spot:
    num_right = 0
    while num_right < min(len(guess), len(rest)) and guess[num_right] == rest[num_right]:
        num_right += 1
    return Spot(len(guess), num_right)
