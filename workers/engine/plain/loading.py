"""A loaded model is made ready for engine generate."""

from typing import Any

from workers.engine.families import extended_context, freest_sharing, usable_context
from workers.engine.plain.calling import neutralise
from workers.engine.plain.model import UNBOUNDED, PlainModel
from workers.engine.plain.sharing import measured_sharing
from workers.engine.target import eos_token_ids, named_length

_ENCODER_NAMES = ("max_encoder_position_embeddings", "max_position_embeddings")
_DECODER_NAMES = ("max_decoder_position_embeddings", "max_position_embeddings")


def plain_model(weights: Any, tokenizer: Any, model_class: Any) -> PlainModel:
    """weights: the model on its device; its generation config is neutral afterwards.

    Raises ValueError where nothing says how its decoder starts.
    """
    model, config = weights.eval(), weights.config
    ending_ids = eos_token_ids(model)
    neutralise(model)
    sharing, vocab_size = measured_sharing(model, freest_sharing(config, model_class))
    return PlainModel(
        model=model,
        tokenizer=tokenizer,
        eos_token_ids=ending_ids,
        vocab_size=vocab_size,
        sharing=sharing,
        prompt_length=_prompt_length(config),
        context_length=_context_length(config),
        shared_length=usable_context(config) or UNBOUNDED,
    )


def _prompt_length(config: Any) -> int:
    if not config.is_encoder_decoder:
        return UNBOUNDED
    return named_length(getattr(config, "encoder", config), _ENCODER_NAMES) or UNBOUNDED


def _context_length(config: Any) -> int:
    if config.is_encoder_decoder:
        return named_length(getattr(config, "decoder", config), _DECODER_NAMES) or UNBOUNDED
    return extended_context(config) or named_length(config.get_text_config()) or UNBOUNDED
