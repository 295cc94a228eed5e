"""A model folder of a few kilobytes: a random llama with a tokenizer of single characters and a chat template."""

import json
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFWriter
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tests.engine.conftest import tiny_model

CHAT_TEMPLATE = (
    "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('unknown role ' + m.role) }}{% endif %}"
    "{% if 'name' in m or m.tool_calls %}unused{% endif %}"
    "{{ (bos_token if loop.first else '') + '[' + m.role + ']' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
SPECIAL_TOKENS = ("<s>", "</s>")
_GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "gate_proj": "gate",
    "up_proj": "up",
    "down_proj": "down",
    "embed_tokens": "token_embd",
    "lm_head": "output",
}


def tiny_tokenizer(chat_template: str | None = CHAT_TEMPLATE) -> PreTrainedTokenizerFast:
    """Every printable ASCII character is a token; <s> comes first where special tokens are asked for."""
    alphabet = [*SPECIAL_TOKENS, *map(chr, range(32, 127)), "\n", "?"]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(alphabet))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="?")
    fast.chat_template = chat_template
    return fast


def make_folder(folder: Path, **changes: Any) -> Path:
    """Writes model, tokenizer and template; changes go into the config."""
    model = tiny_model("llama", vocab_size=100, **{"eos_token_id": 1, **changes})
    model.generation_config.eos_token_id = 1
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def make_gguf(folder: Path, path: Path) -> Path:
    """Writes a folder's model, in float32, as a GGUF file with a tokenizer of single bytes."""
    config, weights = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    tokens = [*SPECIAL_TOKENS, "!!", "##", *map(chr, range(33, 256))]
    writer.add_token_list(tokens[: config["vocab_size"]])
    writer.add_token_merges(["! !", "# #"])  # transformers 4 takes a list of one for its element
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    for name, weight in weights.items():
        writer.add_tensor(_gguf_name(name), _gguf_layout(name, weight, config).contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_name(name: str) -> str:
    renamed = name.removeprefix("model.").replace("layers.", "blk.").replace("self_attn.", "").replace("mlp.", "ffn_")
    for ours, theirs in _GGUF_NAMES.items():
        renamed = renamed.replace(ours, theirs)
    return "output_norm.weight" if renamed == "norm.weight" else renamed


def _gguf_layout(name: str, weight: torch.Tensor, config: dict[str, Any]) -> torch.Tensor:
    """GGUF pairs the two halves of each query and key head that rotary positions turn together."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    count = next((config[key] for part, key in heads.items() if part in name), None)
    if count is None:
        return weight
    num_out, num_in = weight.shape
    return weight.view(count, 2, num_out // count // 2, num_in).swapaxes(1, 2).reshape(num_out, num_in)
