"""What goes into the engine and what comes out: plain values, no tensors."""

from dataclasses import dataclass, field
from typing import Any, Literal

FinishReason = Literal["stop", "length", "error"]
SampleKey = tuple[int, int]  # row_index, sample_index: what names one completion of a job


@dataclass(frozen=True, slots=True)
class InputRow:
    """One row of the input as read: its prompt or messages, or why it has none.

    error: (error_kind, error_message) where the reader already knows that the row cannot be generated.
    params: the row's overrides as read; a mapping, JSON text or None.
    """

    row_index: int
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    params: Any = None
    error: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One sample of one row, ready to be generated; the options mean what SamplingSpec says of them.

    logit_bias: (token id, what is added to its logit). bad_words: sequences of token ids, of which none is generated.
    """

    row_index: int
    prompt_token_ids: tuple[int, ...]
    max_new_tokens: int
    seed: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    min_new_tokens: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    sample_index: int = 0

    @property
    def key(self) -> SampleKey:
        return self.row_index, self.sample_index


@dataclass(slots=True)
class RowStatistics:
    """Acceptance statistics of one row, named as vLLM's per-request metrics.

    num_target_steps: target forwards after prefill that the row took part in.
    num_spec_steps: those of them in which it had drafted tokens.
    num_draft_tokens, num_accepted_draft_tokens: proposed (padding not counted); kept after stop and length cuts.
    num_cut_target_tokens: target-drawn tokens (the prefill's too) that a stop or the length limit cut.
    acceptance_histogram: [j] = rounds with drafts that kept j drafted tokens.

    Two identities hold for every ok row:
    sum(acceptance_histogram) = num_spec_steps;
    completion_tokens = 1 + num_target_steps + num_accepted_draft_tokens - num_cut_target_tokens.
    """

    num_target_steps: int = 0
    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    num_cut_target_tokens: int = 0
    acceptance_histogram: list[int] = field(default_factory=list)

    @property
    def draft_acceptance_rate(self) -> float | None:
        return self.num_accepted_draft_tokens / self.num_draft_tokens if self.num_draft_tokens else None

    @property
    def mean_acceptance_length(self) -> float | None:
        return 1 + self.num_accepted_draft_tokens / self.num_spec_steps if self.num_spec_steps else None


@dataclass(frozen=True, slots=True)
class Completion:
    """One sample of one row generated. token_ids include the EOS or stop token that ended it.

    text: where a stop text cut the row, its text up to there; else None, and the text is that of token_ids.
    """

    row_index: int
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    statistics: RowStatistics
    sample_index: int = 0
    text: str | None = None


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """One row as it will be written: ok with its completion, or error with its kind and message."""

    row_index: int
    error: tuple[str, str] | None = None
    text: str | None = None
    finish_reason: FinishReason | None = None
    num_prompt_tokens: int | None = None
    token_ids: tuple[int, ...] = ()
    seed: int | None = None
    statistics: RowStatistics | None = None
    sample_index: int = 0

    @property
    def key(self) -> SampleKey:
        return self.row_index, self.sample_index
