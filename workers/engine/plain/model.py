"""What the engine knows of a model that transformers generates with."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schemas.errors import RowFailed
from workers.engine.families import Sharing
from workers.engine.limits import check_prompt_length
from workers.engine.rows import RowLimits
from workers.engine.target import decode_text

UNBOUNDED = sys.maxsize


@dataclass(frozen=True, slots=True)
class PlainModel:
    """A loaded model whose generation config has been made neutral.

    vocab_size: width of its logits. sharing: which rows may be in a batch. prompt_length: of an encoder, UNBOUNDED
    where there is none. context_length: tokens of prompt and completion, of an encoder-decoder those of the completion.
    shared_length: longer rows are generated alone.
    """

    model: Any
    tokenizer: Any
    eos_token_ids: frozenset[int]
    vocab_size: int
    sharing: Sharing
    prompt_length: int = UNBOUNDED
    context_length: int = UNBOUNDED
    shared_length: int = UNBOUNDED

    @property
    def is_encoder_decoder(self) -> bool:
        return bool(self.model.config.is_encoder_decoder)

    def check_prompt(self, num_tokens: int, kv_length: int | None) -> None:
        """Raises RowFailed unless the prompt can be followed by a token. kv_length: the job's."""
        if not self.is_encoder_decoder:
            return check_prompt_length(num_tokens, self.limits(kv_length).context_length)
        check_prompt_length(num_tokens, UNBOUNDED)
        if num_tokens > self.prompt_length:
            message = f"the prompt has {num_tokens} tokens, and the model's encoder takes {self.prompt_length}"
            raise RowFailed("prompt_too_long", f"{message}; shorten the prompt")

    def limits(self, kv_length: int | None) -> RowLimits:
        """What ends rows. kv_length: the job's, which may hold the context shorter."""
        context = self.context_length if kv_length is None else min(self.context_length, kv_length)
        return RowLimits(self.eos_token_ids, context, self.vocab_size, self.decode)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of generated tokens, without EOS and other special tokens."""
        return decode_text(self.tokenizer, token_ids)
