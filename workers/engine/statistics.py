"""Where a run of tokens ends, and a row's acceptance statistics once it has ended."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from schemas.generation import FinishReason, RowStatistics


class RoundOfRow(NamedTuple):
    """One target forward of a row: tokens it drafted, and how many of those were accepted before any cut."""

    num_drafted: int
    num_accepted: int


def cut_run(tokens: Sequence[int], ending_ids: Collection[int], num_remaining: int) -> tuple[int, FinishReason | None]:
    """(how many of a round's tokens the row keeps, why it ends there or None while it goes on).

    num_remaining: how many tokens the row may still generate, at least 1. An end inside that limit wins over it.
    """
    for index, token in enumerate(tokens[:num_remaining]):
        if token in ending_ids:
            return index + 1, "stop"
    if len(tokens) >= num_remaining:
        return num_remaining, "length"
    return len(tokens), None


def row_statistics(rounds: Sequence[RoundOfRow], num_tokens: int, max_draft_tokens: int) -> RowStatistics:
    """The statistics of a row that kept its first num_tokens tokens.

    The prefill drew one token, and each round its accepted drafted ones and one of the target's own. A cut may take
    whole rounds back, since a stop text can begin in an earlier one; only what is kept counts as accepted.
    """
    statistics = RowStatistics(acceptance_histogram=[0] * (max_draft_tokens + 1) if max_draft_tokens else [])
    statistics.num_cut_target_tokens = int(num_tokens == 0)
    num_left = max(num_tokens - 1, 0)
    for num_drafted, num_accepted in rounds:
        num_kept = min(num_left, num_accepted)
        statistics.num_target_steps += 1
        statistics.num_cut_target_tokens += num_left <= num_accepted
        num_left = max(num_left - num_accepted - 1, 0)
        if num_drafted:
            statistics.num_spec_steps += 1
            statistics.num_draft_tokens += num_drafted
            statistics.num_accepted_draft_tokens += num_kept
            statistics.acceptance_histogram[num_kept] += 1
    return statistics
