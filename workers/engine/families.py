"""What a model can be used for, read off its config before any weight is loaded.

The speculative engine gives each row its own positions over one fixed cache, with explicit masks. A family whose layers
keep another state, or that works its positions out of something else, would silently compute something different.
"""

from typing import Any, Literal

from schemas.errors import InvalidJob

GENERATE_RUNS_IT = "--engine generate runs it"

# What rows of a batch of engine generate must have in common: nothing, the length of their prompts, or all.
Sharing = Literal["padded", "equal", "alone"]

_LAYER_TYPES = {"full_attention", "sliding_attention"}
_HYBRID_MARKERS = ("layers_block_type", "attn_layer_indices", "hybrid_layer_ids", "attention_free", "ssm_cfg")
_RECURRENT = {"falcon_mamba", "lfm2", "lfm2_moe", "mamba", "mamba2", "recurrent_gemma", "rwkv", "xlstm"}

# Families whose windows are known to be followed where the masks carry them.
WINDOWED = frozenset(
    {"cohere2", "exaone4", "gemma2", "gemma3_text", "gpt_oss", "ministral", "mistral", "mixtral", "olmo3", "phi3"}
    | {"qwen2", "qwen3", "qwen3_moe", "smollm3", "starcoder2"}
)


def refuse_unreadable(config: Any, model_class: Any) -> None:
    """Raises InvalidJob that names the family and the reason, where no engine can run the model.

    config: as transformers loads it. model_class: what transformers would generate text with, or None.
    """
    if reason := _unreadable_reason(config, model_class):
        raise InvalidJob(f"model family {config.model_type} is not supported: {reason}; choose another model")


def refuse_unsupported(config: Any, model_class: Any) -> None:
    """As `refuse_unreadable`, and also where the speculative engine alone cannot run the model."""
    refuse_unreadable(config, model_class)
    if reason := _speculative_reason(config, config.get_text_config(), model_class):
        raise InvalidJob(
            f"model family {config.model_type} is not supported by engine speculative: {reason}; {GENERATE_RUNS_IT}"
        )


def usable_context(config: Any) -> int | None:
    """A context in which rows of a batch are independent, where that is not any: up to the original one.

    Dynamic and longrope positions turn all rows of a batch by other frequencies as soon as one of them is past it.
    """
    text = config.get_text_config()
    for rope in _ropes(text):
        kind = _kind(rope)
        if "dynamic" in kind:
            return int(text.max_position_embeddings)
        if kind in ("longrope", "su"):
            original = getattr(text, "original_max_position_embeddings", None)
            length: int | None = rope.get("original_max_position_embeddings", original)
            return length or text.max_position_embeddings
    return None


def extended_context(config: Any) -> int | None:
    """Where dynamic positions end, whose config names the context that they extend; None without any."""
    text = config.get_text_config()
    factors = [rope.get("factor", 1.0) for rope in _ropes(text) if "dynamic" in _kind(rope)]
    return int(text.max_position_embeddings * max(factors)) if factors else None


def freest_sharing(config: Any, model_class: Any) -> Sharing:
    """What rows of a batch of engine generate must have in common, so that none changes another.

    Padding goes through a recurrent state, masked or not. Experts with a capacity for the batch refuse one row's tokens
    where another has filled them.
    """
    text = config.get_text_config()
    if getattr(text, "moe_eval_capacity_token_fraction", 0) > 0:
        return "alone"
    return "equal" if _state_reason(text, model_class) else "padded"


def _unreadable_reason(config: Any, model_class: Any) -> str | None:
    if model_class is None:
        return "it is not a causal language model"
    if _rope_unread(config.get_text_config()):
        return "its config.json has rope_parameters, which transformers 4 does not read; add rope_theta, or use 5"
    return None


def _speculative_reason(config: Any, text: Any, model_class: Any) -> str | None:
    if config.is_encoder_decoder:
        return "it is an encoder-decoder"
    return _state_reason(text, model_class) or _position_reason(text) or _window_reason(text)


def _state_reason(text: Any, model_class: Any) -> str | None:
    others = set(getattr(text, "layer_types", None) or ()) - _LAYER_TYPES
    if others:
        return f"it has layers of type {', '.join(sorted(others))}, which keep no rewritable cache"
    is_stateful = getattr(model_class, "_is_stateful", False) or text.model_type in _RECURRENT
    if is_stateful or any(getattr(text, name, None) for name in _HYBRID_MARKERS):
        return "it is recurrent or hybrid, and a recurrent state cannot be taken back"
    return None


def _position_reason(text: Any) -> str | None:
    attention = getattr(text, "attn_config", None)
    is_alibi = text.model_type == "bloom" or getattr(text, "alibi", False) or getattr(attention, "alibi", False)
    if is_alibi or getattr(text, "position_embedding_type", None) == "alibi":
        return "its ALiBi positions are worked out from a mask that ragged rows do not have"
    return None


def _window_reason(text: Any) -> str | None:
    if "local" in getattr(text, "attention_layers", ()):  # gpt_neo
        return "its local attention counts from the end of the cache, which ragged rows do not share"
    window = getattr(text, "sliding_window", None)
    layer_types = getattr(text, "layer_types", None)
    is_used = getattr(text, "use_sliding_window", True) and (not layer_types or "sliding_attention" in layer_types)
    if window is None or not is_used or text.model_type in WINDOWED:
        return None
    context = getattr(text, "max_position_embeddings", None)
    if context is not None and window >= context:
        return None
    return f"its attention window of {window} tokens is shorter than its context of {context}"


def _rope_unread(text: Any) -> bool:
    """A config that transformers 5 wrote and 4 read: its rope settings would be replaced by defaults in silence."""
    known = getattr(text, "rope_theta", None)
    if known is None:
        return False
    read = (known, getattr(text, "rope_local_base_freq", known))  # gemma3 has one more, for its windows
    is_scaled = bool(getattr(text, "rope_scaling", None))
    written = _with_nested(getattr(text, "rope_parameters", None) or {})
    return any(
        rope.get("rope_theta", known) not in read or (rope.get("rope_type", "default") != "default" and not is_scaled)
        for rope in written
    )


def _ropes(text: Any) -> list[dict[str, Any]]:
    """The rope settings: of transformers 4, of 5, or of 5 by layer type."""
    settings = [getattr(text, name, None) or {} for name in ("rope_scaling", "rope_parameters")]
    return [rope for setting in settings for rope in _with_nested(setting)]


def _with_nested(rope: dict[str, Any]) -> list[dict[str, Any]]:
    return [rope, *(value for value in rope.values() if isinstance(value, dict))]


def _kind(rope: dict[str, Any]) -> str:
    return str(rope.get("rope_type", rope.get("type")))
