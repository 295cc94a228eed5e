import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from schemas.seeds import derive_row_seed
from workers.engine.noise import (
    ACCEPT,
    DRAFT,
    KEY_INITS,
    TARGET,
    exponential_noise,
    noise_bits,
    seed_words,
    uniform_noise,
    uniform_of,
)

pytestmark = pytest.mark.engine

MASK = 0xFFFFFFFF
SEEDS = st.integers(0, 2**63 - 1)
INDICES = st.integers(0, 2**31 - 1)


def murmur3_x86_32(data: bytes, state: int) -> int:
    """MurmurHash3_x86_32 of whole words, in plain integers."""
    for (word,) in struct.iter_unpack("<I", data):
        word = word * 0xCC9E2D51 & MASK
        word = (word << 15 | word >> 17) & MASK
        state ^= word * 0x1B873593 & MASK
        state = (state << 13 | state >> 19) & MASK
        state = (state * 5 + 0xE6546B64) & MASK
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & MASK
    return state ^ state >> 16


def plain_bits(seed: int, index: int, token: int) -> int:
    first, second = (murmur3_x86_32(struct.pack("<QI", seed, index), init) for init in KEY_INITS)
    bits = first ^ token
    bits = (bits ^ bits >> 16) * 0x7FEB352D & MASK
    bits = ((bits ^ bits >> 15) ^ second) * 0x846CA68B & MASK
    return bits ^ bits >> 16


def torch_bits(seeds: list[int], index: list[list[int]], vocab_size: int) -> np.ndarray:
    return noise_bits(seed_words(seeds), torch.tensor(index), vocab_size).numpy().view(np.uint32)


def uniforms(seeds: list[int], num_indices: int, vocab_size: int) -> np.ndarray:
    index = torch.arange(num_indices).expand(len(seeds), -1)
    return uniform_noise(seed_words(seeds), index, vocab_size).numpy()


def assert_independent(first: np.ndarray, second: np.ndarray) -> None:
    """Pairs fall into all 16 x 16 squares alike. The noise is fixed, so this passes or fails for good."""
    squares = (first * 16).astype(int) * 16 + (second * 16).astype(int)
    assert chisquare(np.bincount(squares.ravel(), minlength=256)).pvalue > 1e-3


def of_a_job(stream: int = TARGET) -> np.ndarray:
    """(rows, samples, indices, tokens) of one job's first rows."""
    num_rows, num_samples, num_indices, vocab_size = 60, 8, 16, 64
    seeds = [derive_row_seed(0, row, sample) for row in range(num_rows) for sample in range(num_samples)]
    index = torch.arange(num_indices).expand(len(seeds), -1)
    numbers = uniform_noise(seed_words(seeds), index, vocab_size, stream).numpy()
    return numbers.reshape(num_rows, num_samples, num_indices, vocab_size)


def jointly_even(*parts: np.ndarray, num_steps: int) -> float:
    """p-value of all combinations of the parts' steps being alike; no number may be in two combinations."""
    cells = np.zeros(parts[0].size, dtype=np.int64)
    for part in parts:
        cells = cells * num_steps + (part.ravel() * num_steps).astype(int)
    return float(chisquare(np.bincount(cells, minlength=num_steps ** len(parts))).pvalue)


@pytest.mark.parametrize(
    ("data", "init", "expected"),
    [(b"", 1, 0x514E28B7), (b"aaaa", 0x9747B28C, 0x5A97808A), (b"\x21\x43\x65\x87", 0, 0xF55B516B)],
)
def test_the_plain_hash_of_these_tests_is_murmur3(data, init, expected):
    assert murmur3_x86_32(data, init) == expected


@given(st.lists(st.tuples(SEEDS, INDICES, INDICES), min_size=1, max_size=4), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_torch_and_plain_python_agree_bit_for_bit(rows, vocab_size):
    found = torch_bits([seed for seed, _, _ in rows], [[a, b] for _, a, b in rows], vocab_size)
    expected = [[[plain_bits(s, i, v) for v in range(vocab_size)] for i in (a, b)] for s, a, b in rows]
    assert found.tolist() == expected


def test_large_token_ids_agree_too():
    assert torch_bits([7], [[3]], 200_000)[0, 0, -5:].tolist() == [plain_bits(7, 3, v) for v in range(199_995, 200_000)]


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20))
def test_uniform_is_the_middle_of_its_unsigned_step_and_below_one(words):
    bits = torch.tensor(words, dtype=torch.int32)
    exact = (bits.numpy().view(np.uint32).astype(np.float64) + 0.5) / 2**32
    found = uniform_of(bits).numpy()
    assert (found > 0).all() and (found < 1).all()
    assert np.allclose(found, exact, rtol=2**-23, atol=0)


def test_noise_is_positive_and_finite_at_both_ends():
    ends = uniform_of(torch.tensor([0, -1, 2**31 - 1, -(2**31)], dtype=torch.int32))
    noise = -torch.log1p(-ends)
    assert torch.isfinite(noise).all() and (noise > 0).all()


def test_exponential_noise_is_that_of_the_uniform_numbers():
    seeds, index = seed_words([1, 2**62]), torch.tensor([[0, 5], [9, 1]])
    uniform = uniform_noise(seeds, index, 64).double()
    assert torch.allclose(exponential_noise(seeds, index, 64).double(), -torch.log1p(-uniform), rtol=1e-6)


def test_noise_does_not_depend_on_padding_batch_mates_or_window():
    whole = torch_bits([3, 4, 5], [[0, 1, 2], [7, 8, 9], [1, 2, 3]], 100)
    assert (torch_bits([4], [[8]], 60)[0, 0] == whole[1, 1, :60]).all()


def test_uniform_numbers_fill_the_interval_evenly():
    values = uniforms(list(range(50)), 10, 400).ravel()
    assert chisquare(np.bincount((values * 1000).astype(int), minlength=1000)).pvalue > 1e-3


def test_every_bit_is_set_half_of_the_time():
    bits = torch_bits(list(range(64)), [list(range(16))] * 64, 512).ravel()
    share = [(bits >> place & 1).mean() for place in range(32)]
    assert np.abs(np.array(share) - 0.5).max() < 4 * 0.5 / len(bits) ** 0.5


def test_neighbours_in_index_row_and_token_are_independent():
    noise = uniforms(list(range(60)), 21, 200)
    assert_independent(noise[:, :-1], noise[:, 1:])
    assert_independent(noise[:-1], noise[1:])
    assert_independent(noise[:, :, :-1], noise[:, :, 1:])


def test_far_seeds_that_share_a_word_are_independent():
    low = uniforms(list(range(200)), 4, 100)
    high = uniforms([seed << 32 for seed in range(200)], 4, 100)
    assert_independent(low[1:], high[1:])


@pytest.mark.parametrize("stream", [TARGET, DRAFT, ACCEPT])
def test_adjacent_indices_rows_and_samples_are_jointly_independent(stream):
    noise = of_a_job(stream)
    corners = [noise[row::2, sample::2, index::2] for row in (0, 1) for sample in (0, 1) for index in (0, 1)]
    assert jointly_even(*corners, num_steps=3) > 1e-3
    assert jointly_even(*(corner * 2**12 % 1 for corner in corners), num_steps=3) > 1e-3


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_neighbours_of_a_job_are_independent_in_fine_steps(axis):
    noise = np.moveaxis(of_a_job(), axis, 0)
    assert jointly_even(noise[::2], noise[1::2], num_steps=64) > 1e-3


@pytest.mark.parametrize("later", [0, 1])
def test_streams_are_jointly_independent_at_an_index_and_at_the_next(later):
    target, draft, accept = (of_a_job(stream) for stream in (TARGET, DRAFT, ACCEPT))
    at, after = slice(0, 15), slice(later, 15 + later)
    assert jointly_even(target[:, :, after], draft[:, :, at], accept[:, :, at], num_steps=16) > 1e-3


def test_the_number_that_accepts_a_token_is_independent_of_all_that_drafts_and_replaces_it():
    target, draft, accept = (of_a_job(stream) for stream in (TARGET, DRAFT, ACCEPT))
    first = np.broadcast_to(accept[..., :1], target.shape)
    for token in (0, 1, 63):
        parts = (first[..., token], draft[..., token], target[..., token])
        assert jointly_even(*parts, num_steps=8) > 1e-3
