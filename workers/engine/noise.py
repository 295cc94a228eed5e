"""One uniform number for each (row seed, generated index, token id), from a counter hash.

The noise of a token is a pure function of those three, so it is the same whatever was drafted, whoever shares the
batch, in whatever shape the position is computed, and however far the vocabulary is padded.

The hash is MurmurHash3_x86_32 (Appleby, public domain) over the seed's two words and the index, once for each of two
initial values of the stream, which makes a 64-bit key for the position; then lowbias32 (Wellons, hash prospector,
public domain) over the token id, with one key word xored in before its first and the other before its second
multiplication.
Everything is 32-bit integer arithmetic that wraps, so that it runs on devices without 64-bit integers.
"""

import torch
from torch import Tensor

KEY_INITS = (0x3C6EF372, 0x1B873593)
# Independent draws of one generated index. Coupled drafts share TARGET with the target; rejection has one for each.
TARGET, DRAFT, ACCEPT = 0, 0x5BD1E995, 0x2545F491
_MURMUR_C1, _MURMUR_C2, _MURMUR_ADD = 0xCC9E2D51, 0x1B873593, 0xE6546B64
_FMIX_C1, _FMIX_C2 = 0x85EBCA6B, 0xC2B2AE35
_LOWBIAS_C1, _LOWBIAS_C2 = 0x7FEB352D, 0x846CA68B
_LARGEST_UNIFORM = 1 - 2**-24


def seed_words(seeds: list[int]) -> Tensor:
    """Row seeds below 2**63 as (B, 2) int32 on the CPU: low word, high word."""
    words = [[_signed(seed & 0xFFFFFFFF), _signed(seed >> 32)] for seed in seeds]
    return torch.tensor(words, dtype=torch.int32).view(len(seeds), 2)


def exponential_noise(seeds: Tensor, generated_index: Tensor, vocab_size: int, stream: int = TARGET) -> Tensor:
    """E = -log1p(-u) for every token of every position: (B, T, V) float32, above 0 and finite.

    seeds: (B, 2) int32 of `seed_words`. generated_index: (B, T), 0 for the prefill's token.
    """
    return uniform_noise(seeds, generated_index, vocab_size, stream).neg_().log1p_().neg_()


def uniform_noise(seeds: Tensor, generated_index: Tensor, vocab_size: int, stream: int = TARGET) -> Tensor:
    """u in (0, 1) for every token of every position: (B, T, V) float32."""
    return uniform_of(noise_bits(seeds, generated_index, vocab_size, stream))


def uniform_of(bits: Tensor) -> Tensor:
    """u = (bits + 1/2) / 2**32, for int32 bits read as unsigned. A race is decided by small u, which keep all bits."""
    signed = bits.to(torch.float32).mul_(2.0**-32).add_(2.0**-33)  # [-1/2, 1/2): the upper half wrapped
    return signed.sub_(signed.floor()).clamp_(max=_LARGEST_UNIFORM)


def noise_bits(seeds: Tensor, generated_index: Tensor, vocab_size: int, stream: int = TARGET) -> Tensor:
    """The 32 bits of every token of every position: (B, T, V) int32."""
    low, high, index = seeds[:, :1], seeds[:, 1:], generated_index.to(torch.int32)
    first, second = (_murmur3(init ^ stream, (low, high, index)).unsqueeze(-1) for init in KEY_INITS)
    token = torch.arange(vocab_size, dtype=torch.int32, device=seeds.device)
    bits = first ^ token
    _xor_shift_(bits, 16).mul_(_signed(_LOWBIAS_C1))
    _xor_shift_(bits, 15).bitwise_xor_(second).mul_(_signed(_LOWBIAS_C2))
    return _xor_shift_(bits, 16)


def _murmur3(init: int, words: tuple[Tensor, ...]) -> Tensor:
    state = torch.full_like(words[-1], _signed(init))
    for word in words:
        word = _rotate_left(word * _signed(_MURMUR_C1), 15) * _signed(_MURMUR_C2)
        state = _rotate_left(state ^ word, 13) * 5 + _signed(_MURMUR_ADD)
    state = state ^ (4 * len(words))
    _xor_shift_(state, 16).mul_(_signed(_FMIX_C1))
    _xor_shift_(state, 13).mul_(_signed(_FMIX_C2))
    return _xor_shift_(state, 16)


def _xor_shift_(bits: Tensor, places: int) -> Tensor:
    return bits.bitwise_xor_(_shift_right(bits, places))


def _shift_right(bits: Tensor, places: int) -> Tensor:
    # int32 shifts copy the sign down; the mask makes it the shift of an unsigned number.
    return (bits >> places).bitwise_and_((1 << (32 - places)) - 1)


def _rotate_left(bits: Tensor, places: int) -> Tensor:
    return (bits << places) | _shift_right(bits, 32 - places)


def _signed(word: int) -> int:
    """The int32 with the same bits as an unsigned 32-bit word."""
    return word - 2**32 if word >= 2**31 else word
