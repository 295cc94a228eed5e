"""One round of batched speculative decoding: propose, verify, accept, commit.

A draft source guesses how each row goes on, and one target forward looks at all guesses at once (Leviathan et al.
2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318). Verification is drafter-invariant (Daliri et al. 2024,
"Coupling without communication and drafter-invariant speculative decoding", arXiv 2408.07978): the target's token at
each place is fixed by the row's own noise, whether or not anything was drafted, and a drafted token is accepted where
it is that token. So drafts change how many forwards a row needs and nothing else, greedy or sampled.

Rows keep their own lengths on fixed shapes: B slots, and a window of T positions, the row's last token and T - 1 = k
places for drafted ones. T is 1, a plain decoding step, in a round where no row has a draft.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workers.engine.buckets import Buckets
from workers.engine.drafts.base import DraftSource
from workers.engine.rows import Row, Rows
from workers.engine.runner import ModelRunner
from workers.engine.sampling import BatchSampling, target_tokens


class Proposal(NamedTuple):
    """The windows of one round. drafts: each slot's drafted tokens, on the host; the tensors are the same, padded."""

    drafts: list[list[int]]
    input_ids: Tensor  # (B, T): last token, then drafted tokens
    positions: Tensor  # (B, T): where input_ids stand in their rows
    generated_index: Tensor  # (B, T): which of the row's generated tokens the target draws there
    num_drafted: Tensor  # (B,)
    kv_length: int  # cache positions that hold all windows, bucketed


class Accepted(NamedTuple):
    """What the target made of the windows: its tokens (B, T), of which a row takes the first num_accepted (B,) + 1."""

    target_tokens: Tensor
    num_accepted: Tensor


@torch.inference_mode()
def speculative_round(runner: ModelRunner, draft: DraftSource, rows: Rows, buckets: Buckets) -> list[Row]:
    """Takes every row at least one token further; returns the rows that have ended, out of their slots."""
    proposal = propose(draft, rows, buckets, runner.target.device)
    tokens = verify(runner, proposal, rows.sampling(runner.target.device))
    accepted = accept(proposal, tokens)
    return commit_rows(rows, draft, proposal, accepted)


def propose(draft: DraftSource, rows: Rows, buckets: Buckets, device: torch.device) -> Proposal:
    """Asks for at most k drafted tokens a row, and lays out the windows in one copy to the device."""
    limits = [min(rows.max_draft_tokens, row.num_draftable) if row else 0 for row in rows.slots]
    drafts = draft.propose(limits)
    window = 1 + (rows.max_draft_tokens if any(drafts) else 0)
    layout = torch.from_numpy(lay_out(rows, drafts, window)).to(device)
    steps = torch.arange(window, device=device)
    return Proposal(
        drafts=drafts,
        input_ids=layout[:, 3:],
        positions=layout[:, 0:1] + steps,
        generated_index=layout[:, 1:2] + steps,
        num_drafted=layout[:, 2],
        kv_length=buckets.kv_length(max(row.length for row in rows) - 1 + window),
    )


def lay_out(rows: Rows, drafts: list[list[int]], window: int) -> np.ndarray:
    """(B, 3 + T) int64: first position, first generated index, number of drafted tokens, window. Free slots are 0."""
    layout = np.zeros((len(rows.slots), 3 + window), dtype=np.int64)
    for row in rows:
        drafted = drafts[row.slot]
        values = [row.length - 1, len(row.generated), len(drafted), row.generated[-1], *drafted]
        layout[row.slot, : len(values)] = values
    return layout


def verify(runner: ModelRunner, proposal: Proposal, sampling: BatchSampling) -> Tensor:
    """The target's own token after each position of the windows, (B, T): one forward."""
    logits = runner.decode(proposal.input_ids, proposal.positions, proposal.kv_length)  # (B, T, V)
    return target_tokens(logits, sampling, proposal.generated_index)


def accept(proposal: Proposal, tokens: Tensor) -> Accepted:
    """Drafted tokens are accepted up to the first that is not the target's own; tokens (B, T)."""
    drafted = proposal.input_ids[:, 1:]  # (B, k)
    is_draft = torch.arange(drafted.shape[1], device=drafted.device) < proposal.num_drafted[:, None]
    agrees = (drafted == tokens[:, :-1]) & is_draft
    return Accepted(tokens, agrees.long().cumprod(1).sum(1))


def commit_rows(rows: Rows, draft: DraftSource, proposal: Proposal, accepted: Accepted) -> list[Row]:
    """Moves rows on by their accepted tokens and the target's next one, cut where the row ends."""
    host = torch.cat([accepted.num_accepted[:, None], accepted.target_tokens], dim=1).tolist()  # the round's only wait
    for row in rows:
        num_accepted, *tokens = host[row.slot]
        num_drafted = len(proposal.drafts[row.slot])
        kept = row.keep_round(tokens[: num_accepted + 1], rows.eos_token_ids, num_drafted)
        draft.extend(row.slot, kept)
    return rows.release_finished()
