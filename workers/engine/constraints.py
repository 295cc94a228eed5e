"""What rows ask of their logits before anything is drawn: biases, penalties, bad words, and no end too early.

Each position of a window sees the tokens before it, the drafted ones among them, so that a token's logits are those of
plain decoding wherever it stands in a window. In the order of transformers' own processors.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NewType, Self

import torch
from torch import Tensor

from schemas.generation import Request

Logits = NewType("Logits", Tensor)  # any real numbers; -inf for a token that cannot be drawn

_ANY, _NONE = -1, -2  # token ids: in a bad word's context, any token or none; before a row's first token, no token


class Context(NamedTuple):
    """What stands before the T positions whose logits are constrained: position t follows drafted[:, : offset + t].

    tokens: (B, L) prompt and output, padded on the right. num_tokens, num_prompt: (B,), of them; and of the prompt's.
    drafted: (B, P) tokens of the window after those.
    """

    tokens: Tensor
    num_tokens: Tensor
    num_prompt: Tensor
    drafted: Tensor
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Constraints:
    """The constraints of B rows.

    bias: (B, V). penalties: (B, 3), repetition, presence and frequency. endings: (B, E) token ids that are banned while
    a row has fewer than min_new_tokens (B,); V is padding. bad_words: (B, W, M), each a banned token after M - 1 tokens
    that make it one; None where no row has any.
    """

    bias: Tensor
    penalties: Tensor
    endings: Tensor
    min_new_tokens: Tensor
    bad_words: Tensor | None

    @classmethod
    def of(
        cls,
        requests: Sequence[Request | None],
        vocab_size: int,
        eos_token_ids: Collection[int],
        device: torch.device,
    ) -> Self | None:
        """None where no row has a constraint. Requests are in their slots; None is an empty slot."""
        if not any(request is not None and is_constrained(request) for request in requests):
            return None
        endings = [ending_ids(request, eos_token_ids) if request else [] for request in requests]
        words = [[word for word in request.bad_words if len(word) > 1] if request else [] for request in requests]
        return cls(
            bias=torch.stack([_bias(request, vocab_size) for request in requests]).to(device),
            penalties=torch.tensor([_penalties(request) for request in requests]).to(device),
            endings=torch.tensor(_padded(endings, vocab_size)).view(len(requests), -1).to(device),
            min_new_tokens=torch.tensor([request.min_new_tokens if request else 0 for request in requests]).to(device),
            bad_words=_bad_words(words).to(device) if any(words) else None,
        )


def is_constrained(request: Request) -> bool:
    penalties = (request.repetition_penalty, request.presence_penalty, request.frequency_penalty)
    biased = request.logit_bias or request.bad_words
    return bool(biased) or request.min_new_tokens > 0 or penalties != (1.0, 0.0, 0.0)


def ending_ids(request: Request, eos_token_ids: Collection[int]) -> list[int]:
    """The tokens that end a row: its stop tokens, and the model's EOS unless it ignores those."""
    return sorted({*request.stop_token_ids, *(() if request.ignore_eos else eos_token_ids)})


def constrain(logits: Logits, constraints: Constraints, generated_index: Tensor, context: Context) -> Logits:
    """The rows' constrained logits, (B, T, V) float32. generated_index: (B, T)."""
    biased = logits.float() + constraints.bias[:, None]
    penalised = penalise(biased, constraints.penalties, context)
    banned = early_endings(constraints, generated_index, logits.shape[-1])
    if constraints.bad_words is not None:
        banned = banned | completed_bad_words(constraints.bad_words, context, logits.shape)
    return Logits(penalised.masked_fill(banned, float("-inf")))


def penalise(logits: Tensor, penalties: Tensor, context: Context) -> Tensor:
    """Repetition over prompt and output (Keskar et al. 2019, arXiv 1909.05858); presence and frequency over output."""
    in_prompt, in_output = token_counts(context, logits.shape)
    repetition, presence, frequency = penalties[:, :, None, None].unbind(1)
    penalised = torch.where(logits > 0, logits / repetition, logits * repetition)
    repeated = torch.where(in_prompt + in_output > 0, penalised, logits)
    return repeated - presence * (in_output > 0) - frequency * in_output


def token_counts(context: Context, shape: torch.Size) -> tuple[Tensor, Tensor]:
    """How often each token stands in the prompt, (B, 1, V), and in the output before each position, (B, T, V)."""
    num_rows, num_positions, vocab_size = shape
    places = torch.arange(context.tokens.shape[1], device=context.tokens.device)
    is_prompt = places < context.num_prompt[:, None]
    is_output = (places < context.num_tokens[:, None]) & ~is_prompt
    zeros = torch.zeros(num_rows, vocab_size, device=context.tokens.device)
    in_prompt = zeros.scatter_add(1, context.tokens, is_prompt.float())
    in_output = zeros.scatter_add(1, context.tokens, is_output.float())[:, None]
    drafted = context.drafted[:, None].expand(-1, num_positions, -1)  # (B, T, P)
    steps = torch.arange(num_positions, device=drafted.device)[:, None] + context.offset
    is_before = (torch.arange(drafted.shape[2], device=drafted.device) < steps).float().expand_as(drafted)
    return in_prompt[:, None], in_output.repeat(1, num_positions, 1).scatter_add_(2, drafted, is_before)


def early_endings(constraints: Constraints, generated_index: Tensor, vocab_size: int) -> Tensor:
    """True (B, T, V) for tokens that would end a row before it has its min_new_tokens."""
    is_ending = torch.zeros(len(constraints.endings), vocab_size + 1, dtype=torch.bool, device=generated_index.device)
    is_ending.scatter_(1, constraints.endings, True)
    is_early = generated_index < constraints.min_new_tokens[:, None]
    return is_ending[:, None, :vocab_size] & is_early[..., None]


def completed_bad_words(words: Tensor, context: Context, shape: torch.Size) -> Tensor:
    """True (B, T, V) for tokens that would be the last of a bad word. words: (B, W, M)."""
    num_rows, num_positions, vocab_size = shape
    num_before = words.shape[2] - 1
    places = context.num_tokens[:, None] - num_before + torch.arange(num_before, device=words.device)
    last = context.tokens.gather(1, places.clamp(min=0)).where(places >= 0, _NONE)
    tails = torch.cat([last, context.drafted], dim=1).unfold(1, num_before, 1)
    tails = tails[:, context.offset : context.offset + num_positions, None]  # (B, T, 1, M - 1)
    begun = words[:, None, :, :-1]
    is_completed = ((tails == begun) | (begun == _ANY)).all(-1)  # (B, T, W)
    final = words[:, None, :, -1].clamp(min=0).expand(-1, num_positions, -1)
    is_completed = is_completed & (words[:, None, :, -1] >= 0)
    counts = torch.zeros(num_rows, num_positions, vocab_size, device=words.device)
    return counts.scatter_add_(2, final, is_completed.float()) > 0


def _bias(request: Request | None, vocab_size: int) -> Tensor:
    bias = torch.zeros(vocab_size)
    for token, value in request.logit_bias if request else ():
        bias[token] += value
    for word in request.bad_words if request else ():
        if len(word) == 1:
            bias[word[0]] = float("-inf")
    return bias


def _penalties(request: Request | None) -> tuple[float, float, float]:
    if request is None:
        return 1.0, 0.0, 0.0
    return request.repetition_penalty, request.presence_penalty, request.frequency_penalty


def _padded(lists: Sequence[Sequence[int]], value: int) -> list[list[int]]:
    length = max(1, *map(len, lists)) if lists else 1
    return [[*items, *[value] * (length - len(items))] for items in lists]


def _bad_words(words: Sequence[Sequence[Sequence[int]]]) -> Tensor:
    """(B, W, M): shorter words after _ANY, missing ones with no token to ban."""
    length = max(len(word) for row in words for word in row)
    num_words = max(map(len, words))
    padded = torch.full((len(words), num_words, length), _ANY)
    for index, row in enumerate(words):
        for place, word in enumerate(row):
            padded[index, place, length - len(word) :] = torch.tensor(word)
    return padded
