"""Where a run of tokens ends, and what one round adds to a row's acceptance statistics."""

from collections.abc import Collection, Sequence

from schemas.generation import FinishReason, RowStatistics


def cut_run(
    tokens: Sequence[int], eos_token_ids: Collection[int], num_remaining: int
) -> tuple[int, FinishReason | None]:
    """(how many of a round's tokens the row keeps, why it ends there or None while it goes on).

    num_remaining: how many tokens the row may still generate, at least 1. An EOS inside that limit wins over it.
    """
    for index, token in enumerate(tokens[:num_remaining]):
        if token in eos_token_ids:
            return index + 1, "stop"
    if len(tokens) >= num_remaining:
        return num_remaining, "length"
    return len(tokens), None


def record_round(statistics: RowStatistics, num_drafted: int, num_tokens: int, num_kept: int) -> None:
    """Adds one target forward that drafted num_drafted tokens, committed num_tokens and kept num_kept of them.

    The last of num_tokens is drawn by the target and the ones before it are accepted drafted tokens, so a cut always
    loses the target's. Only what is kept counts as accepted.
    """
    num_accepted = min(num_kept, num_tokens - 1)
    statistics.num_target_steps += 1
    statistics.num_cut_target_tokens += num_kept < num_tokens
    if num_drafted:
        statistics.num_spec_steps += 1
        statistics.num_draft_tokens += num_drafted
        statistics.num_accepted_draft_tokens += num_accepted
        statistics.acceptance_histogram[num_accepted] += 1
