import pytest
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from schemas.errors import InvalidJob
from tests.engine.conftest import tiny_model
from workers.engine.attention import attention_for
from workers.engine.families import WINDOWED, refuse_unsupported, usable_context
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
    refuse_unsupported(config, transformers.MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None))


@pytest.mark.parametrize("family", SUPPORTED)
def test_families_that_the_engine_runs_are_not_refused(family):
    refuse(transformers.AutoConfig.for_model(family))


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        ("t5", {}, "encoder-decoder"),
        ("vit", {}, "not a causal language model"),
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
    with pytest.raises(InvalidJob, match=f"model family {config.model_type} is not supported: .*({reason})"):
        refuse(config)


def test_a_window_as_long_as_the_context_is_no_window():
    config = config_of("modernbert-decoder", local_attention=192)
    config.sliding_window = config.max_position_embeddings
    refuse(config)


def test_an_unused_window_is_no_window():
    config = config_of("qwen2", sliding_window=8, use_sliding_window=False)
    config.model_type = "some_family"
    refuse(config)


@pytest.mark.skipif(IS_VERSION_5, reason="transformers 5 reads rope_parameters")
def test_a_rope_base_that_only_transformers_5_reads_is_refused():
    with pytest.raises(InvalidJob, match="rope_parameters, which transformers 4 does not read"):
        refuse(config_of("llama", rope_parameters={"rope_theta": 100_000.0, "rope_type": "default"}))
    refuse(config_of("llama", rope_theta=100_000.0, rope_parameters={"rope_theta": 100_000.0}))


def longrope():
    rope = {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    return config_of("phi3", original_max_position_embeddings=32, rope_scaling=rope)


def test_longrope_is_held_to_its_original_context():
    assert usable_context(longrope()) == 32
    assert usable_context(config_of("llama")) is None
    assert usable_context(config_of("llama", rope_scaling={"rope_type": "dynamic", "factor": 2.0})) is None


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
    with pytest.raises(InvalidJob, match="model family llama is not supported: decoding over a cache"):
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
