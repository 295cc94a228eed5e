import pytest
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from schemas.errors import InvalidJob
from tests.engine.conftest import endings, make_engine, make_requests, reference, tiny_model
from tests.engine.scripted import NoisyDraft, OracleDraft
from workers.engine.attention import attention_for
from workers.engine.families import (
    WINDOWED,
    extended_context,
    refuse_unreadable,
    refuse_unsupported,
    usable_context,
)
from workers.engine.models import text_class
from workers.engine.self_check import check_ragged_decoding, ragged_difference
from workers.engine.target import Target

pytestmark = pytest.mark.engine

IS_VERSION_5 = int(transformers.__version__.split(".")[0]) >= 5
SMALL = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 96,
    "num_local_experts": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
SUPPORTED = (
    "llama",
    "qwen2",
    "qwen3",
    "gemma",
    "gpt2",
    "gptj",
    "gpt_neox",
    "opt",
    "phi",
    "granite",
    "olmo2",
    "mixtral",
)


def config_of(family, **changes):
    defaults = transformers.AutoConfig.for_model(family)
    small = {name: value for name, value in SMALL.items() if hasattr(defaults, name)}
    return transformers.AutoConfig.for_model(family, **(small | changes))


def refuse(config):
    refuse_unsupported(config, text_class(config))


@pytest.mark.parametrize("family", SUPPORTED)
def test_families_that_the_engine_runs_are_not_refused(family):
    refuse(transformers.AutoConfig.for_model(family))


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        ("t5", {}, "encoder-decoder"),
        ("mamba", {}, "recurrent or hybrid|linear_attention"),
        ("falcon_mamba", {}, "recurrent or hybrid|linear_attention"),
        ("jamba", {}, "recurrent or hybrid|linear_attention"),
        ("recurrent_gemma", {}, "recurrent or hybrid|linear_attention"),
        ("rwkv", {}, "recurrent or hybrid"),
        ("lfm2", {}, "recurrent or hybrid|layers of type conv"),
        ("llama4_text", {}, "layers of type chunked_attention"),
        ("bloom", {}, "ALiBi"),
        ("mpt", {}, "ALiBi"),
        ("falcon", {"alibi": True}, "ALiBi"),
        ("gpt_neo", {}, "local attention"),
        ("modernbert-decoder", {}, "window of 64 tokens is shorter than its context of 8192"),
    ],
)
def test_families_that_the_engine_cannot_run_are_refused_by_name(family, changes, reason):
    config = transformers.AutoConfig.for_model(family, **changes)
    message = f"model family {config.model_type} is not supported by engine speculative: .*({reason})"
    with pytest.raises(InvalidJob, match=f"{message}.*; --engine generate runs it$"):
        refuse(config)
    refuse_unreadable(config, text_class(config))


@pytest.mark.parametrize("family", ["vit", "whisper"])
def test_what_no_engine_can_run_is_sent_to_none(family):
    config = transformers.AutoConfig.for_model(family)
    for refusal in (refuse_unsupported, refuse_unreadable):
        with pytest.raises(InvalidJob, match=f"{family} is not supported: .*not a causal.*; choose another model$"):
            refusal(config, text_class(config))


def test_a_window_as_long_as_the_context_is_no_window():
    config = config_of("modernbert-decoder", local_attention=192)
    config.sliding_window = config.max_position_embeddings
    refuse(config)


def test_an_unused_window_is_no_window():
    config = config_of("qwen2", sliding_window=8, use_sliding_window=False)
    config.model_type = "some_family"
    refuse(config)


@pytest.mark.skipif(IS_VERSION_5, reason="transformers 5 reads rope_parameters")
@pytest.mark.parametrize(
    ("family", "written"),
    [
        ("llama", {"rope_theta": 100_000.0, "rope_type": "default"}),
        ("llama", {"rope_theta": 10_000.0, "rope_type": "dynamic", "factor": 2.0}),
        ("gemma3_text", {"full_attention": {"rope_theta": 5_000.0}, "sliding_attention": {"rope_theta": 10_000.0}}),
        ("gemma3_text", {"full_attention": {"rope_theta": 1_000_000.0, "rope_type": "linear", "factor": 8.0}}),
    ],
)
def test_rope_settings_that_only_transformers_5_reads_are_refused_by_all_engines(family, written):
    config = config_of(family, rope_parameters=written)
    for refusal in (refuse_unsupported, refuse_unreadable):
        with pytest.raises(InvalidJob, match=r"which transformers 4 does not read.*, or use 5; choose"):
            refusal(config, text_class(config))


def test_rope_settings_that_are_read_are_not_refused():
    same = {"full_attention": {"rope_theta": 1_000_000.0}, "sliding_attention": {"rope_theta": 10_000.0}}
    refuse(config_of("gemma3_text", rope_parameters=same, sliding_window=8))
    refuse(config_of("llama", rope_theta=100_000.0, rope_parameters={"rope_theta": 100_000.0}))
    refuse(config_of("llama", rope_scaling={"rope_type": "dynamic", "factor": 2.0}))


def longrope():
    rope = {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    return config_of("phi3", original_max_position_embeddings=32, rope_scaling=rope)


def rope_names():
    """What the running transformers calls a config's rope settings."""
    return ["rope_scaling", "rope_parameters"] if IS_VERSION_5 else ["rope_scaling"]


@pytest.mark.parametrize("name", rope_names())
@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_positions_that_turn_with_the_longest_row_are_held_to_the_original_context(name, key):
    def context(**rope):
        config = config_of("llama", **{name: {**rope, "rope_theta": 10_000.0}})
        return usable_context(config), extended_context(config)

    assert usable_context(longrope()) == 32
    assert context(**{key: "dynamic"}, factor=2.5) == (96, 240)
    assert context(**{key: "linear"}, factor=2.0) == (None, None)
    assert context(**{key: "yarn"}, factor=2.0, original_max_position_embeddings=48) == (None, None)
    llama3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 48}
    assert context(**{key: "llama3"}, factor=8.0, **llama3) == (None, None)
    assert usable_context(config_of("llama")) is extended_context(config_of("llama")) is None


@pytest.mark.parametrize("kind", ["dynamic", "linear", "yarn", "llama3", "longrope"])
def test_scaled_positions_make_no_row_depend_on_its_batch(kind):
    """Up to the context that the engine takes, in rows that run to its end."""
    more = {"llama3": {"low_freq_factor": 1.0, "high_freq_factor": 4.0}}.get(kind, {})
    if kind == "longrope":
        more = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    original = {} if kind in ("dynamic", "linear") else {"original_max_position_embeddings": 48}
    model = tiny_model("llama", rope_scaling={"rope_type": kind, "factor": 2.0, **more, **original})
    context = {"dynamic": 96, "longrope": 48}.get(kind)
    assert usable_context(model.config) == context
    target = Target(model, context_length=context)
    assert target.context_length == (context or 96)
    requests = make_requests(4, max_new_tokens=100, seed=4)
    found = endings(list(make_engine(target, batch_size=3).generate(requests)))
    assert found == reference(target, requests)
    assert {len(request.prompt_token_ids) + len(found[request.row_index].token_ids) for request in requests} == {
        target.context_length
    }


@pytest.mark.parametrize("source", [OracleDraft, NoisyDraft])
@pytest.mark.parametrize(
    ("family", "layers"),
    [("mistral", None), ("gemma2", "mixed"), ("gemma3_text", "mixed"), ("gemma3_text", "sliding_attention")],
)
def test_windows_are_exact_far_beyond_them_whatever_is_drafted(family, layers, source):
    """Windows of 4, drafts of 6, rows of up to 80 tokens: a round crosses the window at every place."""
    mixed = ["sliding_attention", "full_attention"]
    layer_types = {"layer_types": mixed if layers == "mixed" else [layers] * 2} if layers else {}
    target = Target(tiny_model(family, sliding_window=4, **layer_types))
    requests = make_requests(4, max_new_tokens=40, seed=6)
    expected = reference(target, requests)
    wide = reference(Target(tiny_model(family, sliding_window=96, **layer_types)), requests)
    assert expected != wide
    draft = source(3, requests, expected)
    assert endings(list(make_engine(target, 3, k=6, draft_source=draft).generate(requests))) == expected


def windowed_cases():
    for family in sorted(WINDOWED.intersection(CONFIG_MAPPING)):
        yield family, {}
        if hasattr(config_of(family), "layer_types"):
            yield family, {"layer_types": ["sliding_attention", "full_attention"]}
            yield family, {"layer_types": ["sliding_attention"] * 2}


@pytest.mark.parametrize(("family", "changes"), list(windowed_cases()))
def test_windows_are_followed_where_they_are_said_to_be(family, changes):
    if hasattr(config_of(family), "use_sliding_window"):
        changes = {**changes, "use_sliding_window": True, "max_window_layers": 0}
    config = config_of(family, sliding_window=4, **changes)
    refuse(config)
    attention = attention_for(transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], config)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).float().eval()
    assert ragged_difference(Target(model)) < 1e-5


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt", "falcon", "mistral", "gemma2"])
def test_the_self_check_passes_what_the_engine_runs(family):
    check_ragged_decoding(Target(tiny_model(family)))


def test_the_self_check_refuses_a_model_that_sees_what_its_mask_hides():
    target = Target(tiny_model("llama"))
    target.attention_masks = lambda positions, length: torch.ones(
        *positions.shape[:1], 1, positions.shape[1], length, dtype=torch.bool
    )
    with pytest.raises(
        InvalidJob, match=r"llama is not supported by engine speculative: decoding .*; --engine generate"
    ):
        check_ragged_decoding(target)


def test_the_self_check_refuses_a_model_that_ignores_its_positions():
    target = Target(tiny_model("llama"))
    logits = target.logits
    target.logits = lambda ids, positions, *rest, **kw: logits(ids, torch.zeros_like(positions), *rest, **kw)
    with pytest.raises(InvalidJob, match="gives other logits"):
        check_ragged_decoding(target)


def test_the_self_check_refuses_logits_that_are_not_numbers():
    target = Target(tiny_model("llama"))
    logits = target.logits
    target.logits = lambda *args, **kw: logits(*args, **kw) * torch.nan
    with pytest.raises(InvalidJob, match="by nan of their spread"):
        check_ragged_decoding(target)
