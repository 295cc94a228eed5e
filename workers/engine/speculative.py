"""One round of batched speculative decoding: propose, verify, accept, commit.

A draft source guesses how each row goes on, and one target forward looks at all guesses at once (Leviathan et al.
2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318). Which guesses stand is settled in `verification`: coupled
(Daliri et al. 2024, arXiv 2408.07978), so that drafts change how many forwards a row needs and nothing else, or by
rejection sampling.

Rows keep their own lengths on fixed shapes: B slots, and a window of T positions, the row's last token and T - 1 = k
places for drafted ones. T is 1, a plain decoding step, in a round where nothing is drafted.
"""

import time
from typing import NamedTuple

import torch
from torch import Tensor

from workers.engine.batch import Batch
from workers.engine.constraints import Context, Logits
from workers.engine.draft_length import RoundFacts
from workers.engine.drafts.base import DraftRound, Drafts
from workers.engine.noise import DRAFT, exponential_noise
from workers.engine.rows import Row, context_of
from workers.engine.sampling import BatchSampling, constrained, row_probabilities, target_noise, target_tokens
from workers.engine.verification import Accepted, accept_coupled, accept_rejection


class Proposal(NamedTuple):
    """The windows of one round. drafts: what was drafted; the window may be longer than that, never shorter."""

    drafts: Drafts
    input_ids: Tensor  # (B, T): last token, then drafted tokens
    positions: Tensor  # (B, T): where input_ids stand in their rows
    generated_index: Tensor  # (B, T): which of the row's generated tokens the target draws there
    num_drafted: Tensor  # (B,)
    kv_length: int  # cache positions that hold all windows, bucketed
    sampling: BatchSampling
    noise: Tensor | None  # (B, T, V): what the target's tokens are drawn with, coupled; None in a greedy batch
    context: Context | None  # where a row is constrained
    seconds: float  # of drafting


@torch.inference_mode()
def speculative_round(batch: Batch) -> list[Row]:
    """Takes every row at least one token further; returns the rows that have ended, out of their slots."""
    began = time.perf_counter()
    proposal = propose(batch)
    logits = verify(batch, proposal)
    accepted = accept(batch, proposal, logits)
    lengths = [row.length for row in batch.rows]
    committed = commit_rows(batch, proposal, accepted)
    window = proposal.input_ids.shape[1]
    batch.padding.add_round(len(committed), window, proposal.kv_length, lengths, sum(map(len, committed)))
    batch.observe(facts_of(batch, proposal, committed, time.perf_counter() - began))
    return batch.release_finished()


def propose(batch: Batch) -> Proposal:
    """Asks for at most k drafted tokens a row, and lays out the windows."""
    began, rows, draft, device = time.perf_counter(), batch.rows, batch.draft, batch.runner.target.device
    k = batch.controller.ask(draft.name, rows.num_draftable, draft.is_free)
    sampling, heads = rows.sampling(device), heads_of(batch).to(device)
    context = context_of(rows.slots, _kv_length(batch, 0), heads[:, 3:]) if sampling.constraints else None
    noise = None if draft.is_free or not k else _draft_noise(batch, sampling, heads, k)
    drafts = draft.propose(_asked(batch, k, sampling, heads, noise, context)) if k else None
    drafts = drafts if drafts and any(drafts.num_drafted) else Drafts.nothing(len(rows.slots), device)
    window = batch.buckets.window_of(drafts.tokens.shape[1])
    if batch.verification == "coupled":
        noise = noise[:, :window] if noise is not None else _target_noise(batch, sampling, heads, window)
    return Proposal(
        drafts=drafts,
        input_ids=torch.cat([heads[:, 2:3], pad(drafts.tokens, window - 1)], dim=1),
        positions=heads[:, 0:1] + torch.arange(window, device=device),
        generated_index=_index(heads, window),
        num_drafted=torch.tensor(drafts.num_drafted).to(device),
        kv_length=_kv_length(batch, window - 1),
        sampling=sampling,
        noise=noise,
        context=context,
        seconds=time.perf_counter() - began,
    )


def verify(batch: Batch, proposal: Proposal) -> Logits:
    """The target's logits after each position of the windows, (B, T, V), constrained: one forward."""
    logits = batch.runner.decode(proposal.input_ids, proposal.positions, proposal.kv_length)
    context = proposal.context and proposal.context._replace(drafted=proposal.input_ids[:, 1:])
    return constrained(logits, proposal.sampling, proposal.generated_index, context)


def accept(batch: Batch, proposal: Proposal, logits: Logits) -> Accepted:
    """Which drafted tokens stand, and the target's token after them."""
    drafted, sampling = proposal.input_ids[:, 1:], proposal.sampling
    if batch.verification == "coupled":
        return accept_coupled(drafted, proposal.num_drafted, target_tokens(logits, sampling, proposal.noise))
    probs, index = row_probabilities(logits, sampling), proposal.generated_index
    return accept_rejection(drafted, proposal.num_drafted, probs, proposal.drafts.probs, sampling.seeds, index)


def commit_rows(batch: Batch, proposal: Proposal, accepted: Accepted) -> list[list[int]]:
    """Moves rows on by their accepted tokens and the target's next one, cut where the row ends.

    Returns what each slot was given before any cut; nothing for free slots.
    """
    host = torch.cat([accepted.num_accepted[:, None], accepted.tokens], dim=1).tolist()  # the round's only wait
    committed: list[list[int]] = [[] for _ in host]
    for row in batch.rows:
        num_accepted, *tokens = host[row.slot]
        committed[row.slot] = tokens[: num_accepted + 1]
        kept = row.keep_round(committed[row.slot], proposal.drafts.num_drafted[row.slot])
        batch.draft.extend(row.slot, kept)
    return committed


def facts_of(batch: Batch, proposal: Proposal, committed: list[list[int]], seconds: float) -> RoundFacts:
    """What the controller learns from."""
    drafts = proposal.drafts
    return RoundFacts(
        source=batch.draft.name,
        k=drafts.tokens.shape[1],
        num_drafted=drafts.num_drafted,
        kinds=drafts.kinds,
        num_accepted=[max(len(tokens) - 1, 0) for tokens in committed],
        seconds=seconds,
        draft_seconds=0.0 if batch.draft.is_free else proposal.seconds,
        committed=committed,
    )


def heads_of(batch: Batch) -> Tensor:
    """(B, 3) on the host: a row's last position, the generated index after it, its last token. Free slots are 0."""
    rows = batch.rows.slots
    return torch.tensor([[row.length - 1, len(row.generated), row.generated[-1]] if row else [0, 0, 0] for row in rows])


def pad(tokens: Tensor, length: int) -> Tensor:
    """(B, k) to (B, length), with token 0."""
    return torch.nn.functional.pad(tokens, (0, length - tokens.shape[1]))


def _asked(
    batch: Batch, k: int, sampling: BatchSampling, heads: Tensor, noise: Tensor | None, context: Context | None
) -> DraftRound:
    draft, controller = batch.draft, batch.controller
    return DraftRound(
        k=k,
        limits=[min(k, n) for n in batch.rows.num_draftable],
        sampling=sampling,
        generated_index=_index(heads, k + 1),
        noise=noise,
        keeps_probs=batch.verification == "rejection",
        context=context and (lambda drafted: context._replace(drafted=drafted, offset=drafted.shape[1])),
        settle=lambda guesses: controller.settle(draft.name, guesses),
    )


def _draft_noise(batch: Batch, sampling: BatchSampling, heads: Tensor, k: int) -> Tensor | None:
    """Coupled drafts are drawn with the target's own noise, which then serves both; rejection's with another."""
    if batch.verification == "coupled":
        return _target_noise(batch, sampling, heads, batch.buckets.window_of(k))
    if sampling.greedy:
        return None
    return exponential_noise(sampling.seeds, _index(heads, k), batch.runner.target.vocab_size, DRAFT)


def _target_noise(batch: Batch, sampling: BatchSampling, heads: Tensor, window: int) -> Tensor | None:
    return target_noise(sampling, _index(heads, window), batch.runner.target.vocab_size)


def _index(heads: Tensor, num_positions: int) -> Tensor:
    return heads[:, 1:2] + torch.arange(num_positions, device=heads.device)


def _kv_length(batch: Batch, num_drafted: int) -> int:
    return batch.buckets.kv_length(max(row.length for row in batch.rows) + num_drafted)
