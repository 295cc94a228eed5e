"""Tokenizers of three notations, trained on a few lines: byte-level BPE, and sentencepiece's in both of its forms."""

import json
from functools import cache
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "The capital of France is Paris, and the capital of Italy is Rome.",
    "Speculative decoding drafts tokens; the target model verifies them. It's lossless!",
    "def decode(tokens):\n    return ''.join(vocabulary[token] for token in tokens)\n",
    "Größe, café, naïve, señor: 12 345 über 67.89 €; 東京は日本の首都です。 Привет, мир! 🙂🙃",
    "the the the the  the   the\n\n\tthe cat sat on the mat, and that was that.",
] * 4
SPECIAL = ("<s>", "</s>", "<unk>", "<|sep|>")


@cache
def byte_level(vocab_size: int = 420, specials: tuple[str, ...] = SPECIAL, eos: str = "</s>") -> Any:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=list(specials), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=eos)


@cache
def sentencepiece(is_legacy: bool = True) -> Any:
    """BPE over "▁" with byte tokens. is_legacy: the prefix space comes from a normalizer, else from a pre-tokenizer."""
    trained = _trained_sentencepiece()
    vocabulary = {**trained.get_vocab()}
    for value in range(256):
        vocabulary.setdefault(f"<0x{value:02X}>", len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocabulary, _merges(trained), byte_fallback=True, unk_token="<unk>"))
    if is_legacy:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    plain = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(plain)
    tokenizer.add_special_tokens(list(SPECIAL))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", add_bos_token=True
    )


@cache
def nfkc() -> Any:
    """Byte-level, over text in compatibility form: its text isn't the source's."""
    fast = byte_level.__wrapped__(380, ("<EOT>",), "<EOT>")
    fast.backend_tokenizer.normalizer = normalizers.NFKC()
    return fast


def _trained_sentencepiece() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    lines = [line.replace("\n", " ") for line in CORPUS[:3]]  # line ends are byte tokens, as in sentencepiece's models
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=list(SPECIAL), show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def _merges(tokenizer: Tokenizer) -> list[tuple[str, str]]:
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [tuple(merge) if isinstance(merge, list) else tuple(merge.split(" ")) for merge in merges]
