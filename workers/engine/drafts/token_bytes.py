"""The bytes that each token of a vocabulary stands for in the middle of a text, whatever its tokenizer's notation.

Byte-level BPE writes one printable character for each byte, sentencepiece "▁" for a space and "<0xE2>" for a byte,
WordPiece "##" where a word goes on.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from schemas.errors import InvalidJob

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_PRINTABLE = (*range(33, 127), *range(161, 173), *range(174, 256))  # bytes that byte-level BPE writes as themselves


def backend_of(tokenizer: Any) -> Any:
    """The `tokenizers.Tokenizer` inside. Raises InvalidJob where a tokenizer has none."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InvalidJob(
            f"the tokenizer of {tokenizer.name_or_path} has no tokenizer.json form, so its text cannot be drafted for "
            "or by another tokenizer; use a draft with the target's tokenizer, or --draft suffix"
        )
    return backend


def special_tokens(tokenizer: Any) -> dict[str, int]:
    """Ids of the tokens that stand for no text, by content."""
    added = {str(token): index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    named = zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True)
    return added | {content: index for content, index in named if index is not None}


def token_bytes(tokenizer: Any) -> list[bytes | None]:
    """By id; None for special tokens and for ids without a token. Raises InvalidJob for a tokenizer without a backend.

    A token may be a part of a character.
    """
    notation = _Notation(backend_of(tokenizer))
    vocabulary = tokenizer.get_vocab()
    pieces: list[bytes | None] = [None] * (max(vocabulary.values(), default=-1) + 1)
    for content, index in vocabulary.items():
        pieces[index] = notation.piece(content)
    for index, token in tokenizer.added_tokens_decoder.items():
        pieces[index] = str(token).encode()
    for index in special_tokens(tokenizer).values():
        pieces[index] = None
    return pieces


def num_leading_spaces(token_ids: Iterable[int], pieces: Sequence[bytes | None]) -> int:
    """How many spaces the tokens' text begins with. pieces: of `token_bytes`."""
    text = b"".join(pieces[index] or b"" for index in token_ids)
    return len(text) - len(text.lstrip(b" "))


def is_byte_token(content: str) -> bool:
    """Whether the token is sentencepiece's notation for one byte."""
    return _BYTE_TOKEN.fullmatch(content) is not None


class _Notation:
    """How a tokenizer's decoder reads its tokens."""

    def __init__(self, backend: Any) -> None:
        steps = {step["type"]: step for part in (backend.pre_tokenizer, backend.decoder) for step in _steps(part)}
        decoding = list(_steps(backend.decoder))
        self._byte_values = _byte_level_values() if "ByteLevel" in steps else None
        self._has_byte_tokens = any(step["type"] == "ByteFallback" for step in decoding)
        self._replacements = [pair for step in decoding for pair in _replacements(step)]
        self._prefix = next((step["prefix"] for step in decoding if step["type"] == "WordPiece"), None)

    def piece(self, content: str) -> bytes:
        if self._byte_values is not None and all(char in self._byte_values for char in content):
            return bytes(self._byte_values[char] for char in content)
        if self._has_byte_tokens and (match := _BYTE_TOKEN.fullmatch(content)):
            return bytes([int(match[1], 16)])
        if self._prefix is not None:
            is_inside = content.startswith(self._prefix)
            return content.removeprefix(self._prefix).encode() if is_inside else b" " + content.encode()
        for written, read in self._replacements:
            content = content.replace(written, read)
        return content.encode()


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """The steps of a decoder or pre-tokenizer, sequences unrolled; their pickled state is their JSON."""
    if part is not None:
        yield from _unrolled(json.loads(part.__getstate__()))


def _unrolled(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if step["type"] != "Sequence":
        yield step
    for inner in (*step.get("decoders", ()), *step.get("pretokenizers", ())):
        yield from _unrolled(inner)


def _replacements(step: dict[str, Any]) -> list[tuple[str, str]]:
    if step["type"] == "Metaspace":
        return [(step["replacement"], " ")]
    if step["type"] == "BPEDecoder":
        return [(step["suffix"], " ")]
    is_plain = step["type"] == "Replace" and "String" in step["pattern"]
    return [(step["pattern"]["String"], step["content"])] if is_plain else []


def _byte_level_values() -> dict[str, int]:
    """Byte-level BPE's alphabet: a byte that can be seen is written as itself, else as a character from 256 on."""
    hidden = (byte for byte in range(256) if byte not in _PRINTABLE)
    written = {chr(256 + index): byte for index, byte in enumerate(hidden)}
    return written | {chr(byte): byte for byte in _PRINTABLE}
