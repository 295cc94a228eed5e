"""A Hugging Face causal language model as the engine uses it: positions and masks in, logits out."""

import inspect
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from schemas.errors import InvalidJob
from workers.engine.cache import FixedCache, KVShape, ProbeCache
from workers.engine.constraints import Logits
from workers.engine.masks import MaskBuilder, Masks

CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length")


class Target:
    """The model, its tokenizer, and what the engine has to know of them.

    eos_token_ids: any of these ends a row; from the generation config and the config, either of which may be short
    of one. context_length: positions that the model has. kv_shapes: keys and values of the layers, as measured.
    Raises InvalidJob where the config names no context length.
    """

    def __init__(self, model: Any, tokenizer: Any = None, context_length: int | None = None) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.device: torch.device = model.device
        self.config = model.config.get_text_config()
        self.vocab_size: int = self.config.vocab_size
        self.context_length = context_length or config_context_length(self.config)
        self.eos_token_ids = eos_token_ids(model)
        self.attention_masks = MaskBuilder(self.config, model.dtype)
        self._backbone = model.base_model
        self._head = model.get_output_embeddings()
        self._cache_name = cache_name(self._backbone)
        self.kv_shapes, self._head_is_apart = self._probe()

    def logits(
        self, input_ids: Tensor, position_ids: Tensor, masks: Masks, cache: FixedCache, at: Tensor | None = None
    ) -> Logits:
        """Logits (B, T, V) after each of input_ids (B, T), or (B, 1, V) after the one position `at` (B,) of each row.

        position_ids: (B, T). masks: of `attention_masks`. cache: told beforehand where the keys and values go.
        """
        inputs = self._inputs(input_ids, position_ids, masks, cache)
        if not self._head_is_apart:
            return self._whole_model(inputs, at)
        hidden = self._backbone(**inputs).last_hidden_state
        # A cast, not Logits(…): torch.compile cannot look into a call of a NewType.
        return cast(Logits, self._head(hidden if at is None else take_positions(hidden, at)))

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of generated tokens, without EOS and other special tokens."""
        return decode_text(self.tokenizer, token_ids)

    def _inputs(self, input_ids: Tensor, position_ids: Tensor, masks: Masks, cache: FixedCache) -> dict[str, Any]:
        inputs = {"input_ids": input_ids, "position_ids": position_ids, "attention_mask": masks}
        return {**inputs, "use_cache": True, self._cache_name: cache}

    def _whole_model(self, inputs: dict[str, Any], at: Tensor | None) -> Logits:
        if at is None:
            return cast(Logits, self.model(**inputs).logits)
        # The positions are shared by all rows, so (B, B, V) comes back: far less than the (B, T, V) of a prompt.
        rows = torch.arange(at.shape[0], device=at.device)
        return cast(Logits, take_positions(self.model(**inputs, logits_to_keep=at).logits, rows))

    @torch.inference_mode()
    def _probe(self) -> tuple[dict[int, KVShape], bool]:
        """The layers' cache shapes, and whether the head alone makes the model's logits from its hidden states.

        Scaled or capped logits are not equal to the head's to the last bit; the whole model computes those.
        """
        input_ids = torch.arange(4, device=self.device).remainder(self.vocab_size)[None]
        positions = torch.arange(4, device=self.device)[None]
        cache = ProbeCache()
        inputs = self._inputs(input_ids, positions, self.attention_masks(positions, 4), cache)
        logits = self.model(**inputs).logits
        # Some models of transformers 4.55 name no backbone, and are their own.
        hidden = getattr(self._backbone(**inputs), "last_hidden_state", None)
        return cache.shapes, hidden is not None and torch.equal(self._head(hidden), logits)


def take_positions(states: Tensor, at: Tensor) -> Tensor:
    """States (B, 1, D) at one position of each row: states (B, T, D), at (B,)."""
    return states.gather(1, at[:, None, None].expand(-1, 1, states.shape[-1]))


def decode_text(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """The text of generated tokens, without EOS and other special tokens."""
    text: str = tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def eos_token_ids(model: Any) -> frozenset[int]:
    """All EOS ids that the model names; empty where it names none."""
    ids: set[int] = set()
    for config in (model.generation_config, model.config, model.config.get_text_config()):
        named = getattr(config, "eos_token_id", None)
        ids.update(named if isinstance(named, list | tuple) else [] if named is None else [named])
    return frozenset(ids)


def named_length(config: Any, names: Sequence[str] = CONTEXT_NAMES) -> int | None:
    """The first of these lengths that the config names."""
    lengths = (getattr(config, name, None) for name in names)
    return next((length for length in lengths if isinstance(length, int) and length > 0), None)


def config_context_length(config: Any) -> int:
    """Raises InvalidJob where the config names none."""
    if (length := named_length(config)) is not None:
        return length
    raise InvalidJob(f"the model's config.json names no context length; add one of {', '.join(CONTEXT_NAMES)}")


def cache_name(backbone: Any) -> str:
    # transformers 5.24 renamed it.
    return "cache" if "cache" in inspect.signature(backbone.forward).parameters else "past_key_values"
