import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from schemas.generation import Request
from workers.engine import sampling as sampling_module
from workers.engine.noise import exponential_noise
from workers.engine.nucleus import nucleus_threshold
from workers.engine.sampling import (
    BatchSampling,
    Logits,
    Probabilities,
    keep_from,
    probabilities,
    race,
    target_noise,
    target_tokens,
)

pytestmark = pytest.mark.engine

CPU = torch.device("cpu")
OPTIONS = [
    {"temperature": 1.0},
    {"temperature": 0.7},
    {"temperature": 1.6, "top_k": 7},
    {"temperature": 1.0, "top_p": 0.8},
    {"temperature": 0.9, "top_k": 12, "top_p": 0.6},
]
LOGITS = st.lists(st.integers(-4000, 4000), min_size=2, max_size=60, unique=True).map(
    lambda values: Logits(torch.tensor([[values]], dtype=torch.float32) / 500)
)


def request(row_index=0, **options):
    return Request(row_index, (1,), 8, seed=options.pop("seed", row_index), **options)


def batch(*requests):
    return BatchSampling.from_requests(requests, CPU, vocab_size=0)


def drawn(logits, sampling, index):
    return target_tokens(logits, sampling, target_noise(sampling, index, logits.shape[-1]))


def keep_top_p(probs, top_p):
    return keep_from(probs, nucleus_threshold(probs, top_p))


def random_logits(*shape, seed=0):
    return Logits(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 3)


def warped(logits, temperature, top_k=0, top_p=1.0):
    """The probabilities as transformers' own warpers make them, in its order."""
    scores = TemperatureLogitsWarper(temperature)(None, logits[0])
    scores = TopKLogitsWarper(top_k)(None, scores) if top_k else scores
    scores = TopPLogitsWarper(top_p)(None, scores) if top_p < 1 else scores
    return scores.softmax(-1)[None]


def is_borderline(logits, temperature, top_k, top_p):
    """Whether top_p falls so near a cumulative mass that rounding decides."""
    before_top_p = warped(logits, temperature, top_k)
    upto = before_top_p.double().sort(-1, descending=True).values.cumsum(-1)
    return bool(((upto - top_p).abs() < 1e-5).any())


def chi_square_p_value(counts, probs):
    """Whether the counts may come from probs; rare tokens are counted as one, impossible ones must be absent."""
    expected = probs / probs.sum() * counts.sum()
    assert counts[expected == 0].sum() == 0
    rare = expected < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    present = wanted > 0
    assert present.sum() > 2
    return chisquare(observed[present], wanted[present]).pvalue


@given(LOGITS, st.floats(0.2, 3), st.integers(0, 70), st.floats(0.01, 1))
@settings(max_examples=200, deadline=None)
def test_probabilities_are_those_of_transformers_warpers(logits, temperature, top_k, top_p):
    assume(not is_borderline(logits, temperature, top_k, top_p))
    found = probabilities(logits, batch(request(temperature=temperature, top_k=top_k, top_p=top_p)))
    expected = warped(logits, temperature, top_k, top_p)
    assert torch.equal(found > 0, expected > 0)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.9, 0.99])
def test_a_large_vocabulary_keeps_the_smallest_set_up_to_rounding(top_p):
    probs = Probabilities(random_logits(2, 3, 49152).softmax(-1))
    kept = keep_top_p(probs, torch.full((2,), top_p)) > 0
    exact = probs.double()
    smallest = exact.masked_fill(~kept, torch.inf).amin(-1)
    assert (exact.masked_fill(kept, 0).amax(-1) < smallest).all()
    mass = exact.masked_fill(~kept, 0).sum(-1)
    assert (mass > top_p - 1e-6).all()
    assert (mass - smallest < top_p + 1e-6).all()


@given(st.lists(st.integers(1, 4), min_size=2, max_size=30), st.floats(0.05, 0.95))
def test_top_p_keeps_all_or_none_of_equal_tokens(weights, top_p):
    probs = Probabilities(torch.tensor([[weights]], dtype=torch.float32) / sum(weights))
    kept = keep_top_p(probs, torch.tensor([top_p]))[0, 0] > 0
    lightest = min(weight for weight, stays in zip(weights, kept.tolist(), strict=True) if stays)
    assert kept.tolist() == [weight >= lightest for weight in weights]
    above = sum(weight for weight in weights if weight > lightest) / sum(weights)
    assert above < top_p + 1e-5
    assert above + sum(weight for weight in weights if weight == lightest) / sum(weights) > top_p - 1e-5


def test_top_k_keeps_tokens_tied_with_the_last_one():
    logits = Logits(torch.tensor([[[1.0, 3.0, 2.0, 2.0, 0.0]]]))
    probs = probabilities(logits, batch(request(temperature=1.0, top_k=2)))
    assert (probs[0, 0] > 0).tolist() == [False, True, True, True, False]


def test_probabilities_sum_to_one_in_every_row_of_a_mixed_batch():
    requests = [request(i, **options) for i, options in enumerate(OPTIONS)]
    total = probabilities(random_logits(len(requests), 3, 500), batch(*requests)).sum(-1)
    assert torch.allclose(total, torch.ones_like(total), atol=1e-5)


def test_temperature_zero_is_the_argmax_of_the_raw_logits():
    logits = random_logits(2, 4, 300)
    assert torch.equal(drawn(logits, batch(request(), request(1)), torch.zeros(2, 4)), logits.argmax(-1))


@pytest.mark.parametrize("temperature", [1e-5, 1e-37, 5e-324])
def test_a_temperature_next_to_zero_is_the_argmax_too(temperature):
    logits = random_logits(3, 4, 300) * 1e3
    sampling = batch(*[request(i, temperature=temperature, top_p=0.9, top_k=9) for i in range(3)])
    assert torch.equal(drawn(logits, sampling, torch.zeros(3, 4)), logits.argmax(-1))


def test_a_greedy_batch_draws_no_noise(monkeypatch):
    monkeypatch.setattr(sampling_module, "exponential_noise", None)
    sampling = batch(request(), None, request(1, top_k=5, top_p=0.5))
    assert sampling.greedy
    drawn(random_logits(3, 2, 50), sampling, torch.zeros(3, 2))


def test_a_row_draws_the_same_alone_and_among_others():
    requests = [request(0), *[request(i + 1, **options) for i, options in enumerate(OPTIONS)], None]
    logits = random_logits(len(requests), 3, 800)
    index = torch.arange(3) + torch.arange(len(requests))[:, None]
    together = drawn(logits, batch(*requests), index)
    for row, alone in enumerate(requests):
        assert torch.equal(drawn(logits[row : row + 1], batch(alone), index[row : row + 1])[0], together[row])


def test_a_position_draws_the_same_in_a_window_and_alone():
    sampling = batch(request(temperature=1.0, top_k=20, top_p=0.9))
    logits, index = random_logits(1, 5, 800), torch.arange(5)[None] + 3
    window = drawn(logits, sampling, index)
    single = [drawn(logits[:, t : t + 1], sampling, index[:, t : t + 1]) for t in range(5)]
    assert torch.equal(window, torch.cat(single, dim=1))


@pytest.mark.parametrize("options", OPTIONS)
def test_padding_the_vocabulary_changes_no_token(options):
    sampling = batch(*[request(i, **options) for i in range(8)])
    logits, index = random_logits(8, 4, 500), torch.arange(4).expand(8, -1)
    padded = Logits(torch.nn.functional.pad(logits, (0, 77), value=float("-inf")))
    assert torch.equal(drawn(padded, sampling, index), drawn(logits, sampling, index))


@pytest.mark.parametrize("options", OPTIONS)
def test_tokens_win_an_exponential_race(options):
    requests = [request(i, **options) for i in range(6)]
    logits, index = random_logits(6, 2, 200), torch.arange(2).expand(6, -1)
    probs = torch.stack([warped(logits[i : i + 1], **options)[0] for i in range(6)]).double()
    arrivals = exponential_noise(batch(*requests).seeds, index, 200).double() / probs
    assert torch.equal(drawn(logits, batch(*requests), index), arrivals.argmin(-1))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("generated_index", [0, 17])
def test_tokens_of_many_seeds_are_distributed_as_the_probabilities(options, generated_index):
    num_rows, logits = 20_000, random_logits(1, 1, 40, seed=5) / 4
    probs = probabilities(logits, batch(request(**options))).expand(num_rows, -1, -1)
    seeds = batch(*[request(i, **options) for i in range(num_rows)]).seeds
    tokens = race(probs, exponential_noise(seeds, torch.full((num_rows, 1), generated_index), 40))
    counts = np.bincount(tokens.flatten().numpy(), minlength=40)
    assert chi_square_p_value(counts, warped(logits, **options)[0, 0].double().numpy()) > 1e-3


def test_pairs_of_tokens_are_distributed_as_independent_draws():
    logits = random_logits(1, 1, 6, seed=2) / 3
    sampling = batch(*[request(i, temperature=1.0) for i in range(20_000)])
    tokens = drawn(Logits(logits.expand(20_000, 2, -1)), sampling, torch.arange(2).expand(20_000, -1))
    probs = logits.softmax(-1)[0, 0].double().numpy()
    counts = np.bincount((tokens[:, 0] * 6 + tokens[:, 1]).numpy(), minlength=36)
    assert chi_square_p_value(counts, np.outer(probs, probs).ravel()) > 1e-3


def test_half_precision_logits_are_drawn_from_in_float32():
    logits = Logits(random_logits(4, 2, 300).bfloat16())
    sampling, index = batch(*[request(i, temperature=1.0, top_p=0.9) for i in range(4)]), torch.zeros(4, 2)
    assert torch.equal(drawn(logits, sampling, index), drawn(Logits(logits.float()), sampling, index))


class NoHostSync(TorchDispatchMode):
    """Fails on what waits for the device, or makes a shape out of data."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name()
        assert not any(word in name for word in ("_local_scalar_dense", "nonzero", "masked_select", "equal")), name
        indices = args[1] if name.startswith("aten::index") and len(args) > 1 and isinstance(args[1], list) else []
        assert all(index is None or index.dtype != torch.bool for index in indices), "boolean indexing"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("options", [{}, *OPTIONS])
def test_drawing_never_waits_for_the_device(options):
    sampling = batch(*[request(i, **options) for i in range(3)], None)
    logits, index = random_logits(4, 2, 100), torch.arange(2).expand(4, -1)
    with NoHostSync():
        drawn(logits, sampling, index)
