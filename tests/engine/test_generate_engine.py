"""Engine generate: every row gets the tokens that it would get alone, and those of the speculative engine."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import GenerationConfig

from schemas.errors import RowFailed
from schemas.generation import Request
from tests.engine.conftest import VOCAB_SIZE, endings, make_engine, make_requests, tiny_model
from tests.engine.plain_models import CONFIGS, alone, as_plain, plain_engine, plain_tiny
from workers.engine.families import freest_sharing
from workers.engine.plain.batches import plan_batches
from workers.engine.plain.model import UNBOUNDED
from workers.engine.target import Target

pytestmark = pytest.mark.engine

SHARED = ("llama", "gpt_neox", "opt", "gpt2", "gemma", "mistral", "gemma2", "gemma3_text")
AT_BATCH_SIZES = [*((family, 4) for family in SHARED), ("llama", 1), ("gemma3_text", 2)]
RECURRENT = ("mamba", "falcon_mamba", "mamba2", "recurrent_gemma", "jamba", "lfm2", "minimax", "llama4_text")
ENCODER_DECODERS = ("t5", "bart", "pegasus")
ALIBI = ("bloom", "mpt", "falcon", "gpt_neo")


class Letters:
    """A tokenizer of one letter a token, of which the first is special."""

    def decode(self, token_ids, **options):
        return "".join(chr(ord("0") + token_id) for token_id in token_ids if token_id)


def mixed_requests(num_rows=9):
    """Rows that ask for everything there is, each for something else."""
    rows = make_requests(num_rows, max_new_tokens=14, seed=5)
    wanted = [
        {},
        {"temperature": 1.0},
        {"temperature": 0.8, "top_k": 5, "repetition_penalty": 1.3},
        {"temperature": 1.2, "top_p": 0.8, "presence_penalty": 0.5, "frequency_penalty": 0.4},
        {"temperature": 1.0, "min_p": 0.1, "logit_bias": ((3, 2.0), (7, -5.0))},
        {"repetition_penalty": 1.5, "bad_words": ((5,), (9, 4), (11, 2, 6))},
        {"temperature": 1.5, "stop_token_ids": tuple(range(10, 20)), "min_new_tokens": 4},
        {"max_new_tokens": 1, "temperature": 1.0},
        {"temperature": 1.4, "stop": ("A", "BC", "?"), "ignore_eos": True, "min_new_tokens": 2},
    ]
    return [replace(row, **wanted[index % len(wanted)]) for index, row in enumerate(rows)]


def equal_lengths(num_rows, length, max_new_tokens=10):
    rows = make_requests(num_rows, max_new_tokens, seed=length)
    return [replace(row, prompt_token_ids=(row.prompt_token_ids * length)[:length]) for row in rows]


def ragged(num_rows=4, max_new_tokens=10):
    """Ragged prompts, and some of one length."""
    rows = [*make_requests(num_rows, max_new_tokens, seed=2), *equal_lengths(3, 6, max_new_tokens)]
    return [replace(row, row_index=index) for index, row in enumerate(rows)]


def with_eos(family):
    model = tiny_model(family)
    model.generation_config.eos_token_id = list(range(18, 26))
    return model


@pytest.mark.parametrize(("family", "batch_size"), AT_BATCH_SIZES)
def test_rows_get_the_tokens_of_the_speculative_engine(family, batch_size):
    requests = mixed_requests()
    speculative = make_engine(Target(with_eos(family), Letters()), batch_size=4)
    expected = list(speculative.generate(requests))
    found = list(plain_engine(with_eos(family), batch_size, Letters()).generate(requests))
    assert endings(found) == endings(expected)
    assert {c.row_index: c.text for c in found} == {c.row_index: c.text for c in expected}
    assert {"stop", "length"} <= {c.finish_reason for c in found}


@pytest.mark.parametrize("family", [*ALIBI, *RECURRENT, *ENCODER_DECODERS, "rwkv", "nllb-moe"])
def test_rows_get_the_tokens_that_generate_gives_them_alone(family):
    requests = ragged()
    engine = plain_engine(plain_tiny(family))
    assert (engine.model.sharing == "padded") == (family in (*ALIBI, *ENCODER_DECODERS))
    assert endings(list(engine.generate(requests))) == alone(family, requests)


@pytest.mark.parametrize("family", ["bloom", "mamba", "t5"])
def test_sampled_rows_do_not_depend_on_their_batch(family):
    requests = [replace(row, temperature=1.0, frequency_penalty=0.3) for row in ragged()]
    found = endings(list(plain_engine(plain_tiny(family), batch_size=4).generate(requests)))
    engine = plain_engine(plain_tiny(family), batch_size=1)
    assert found == endings([c for row in reversed(requests) for c in engine.generate([row])])
    others = [replace(row, seed=row.seed + 1) for row in requests]
    assert found != endings(list(engine.generate(others)))


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_recurrent_states_are_batched_by_length_and_capacities_not_at_all(family):
    model = plain_tiny(family)
    at_most = {"nllb-moe": "alone"} | dict.fromkeys((*RECURRENT, "rwkv"), "equal")
    assert freest_sharing(model.config, type(model)) == at_most.get(family, "padded")


def test_a_model_whose_batches_are_wrong_is_found_by_trying():
    assert as_plain(plain_tiny("rwkv")).sharing == "alone"  # its second step takes batch and position for each other
    model = tiny_model("llama")
    assert as_plain(model).sharing == "padded"
    forward = model.model.forward

    def see_all(*args, **options):
        return forward(*args, **(options | {"attention_mask": None}))

    model.model.forward = see_all
    assert as_plain(model).sharing == "equal"


@given(
    rows=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6)), max_size=12),
    batch_size=st.integers(1, 4),
    sharing=st.sampled_from(["padded", "equal", "alone"]),
    context_length=st.sampled_from([9, UNBOUNDED]),
    shared_length=st.sampled_from([7, UNBOUNDED]),
)
def test_every_row_is_in_one_batch_with_rows_that_it_may_share_with(
    rows, batch_size, sharing, context_length, shared_length
):
    requests = [Request(index, (1,) * length, num_new, seed=0) for index, (length, num_new) in enumerate(rows)]
    batches = list(plan_batches(requests, batch_size, sharing, context_length, shared_length))
    assert sorted(row.row_index for batch in batches for row in batch) == list(range(len(requests)))
    for batch in batches:
        lengths = [len(row.prompt_token_ids) for row in batch]
        num_steps = max(min(row.max_new_tokens, context_length - len(row.prompt_token_ids)) for row in batch)
        assert len(batch) == 1 or max(lengths) + num_steps <= min(context_length, shared_length)
        assert 0 < len(batch) <= (1 if sharing == "alone" else batch_size)
        assert sharing == "padded" or len({*lengths}) == 1
    if (sharing, context_length, shared_length) == ("padded", UNBOUNDED, UNBOUNDED):
        assert len(batches) == -(-len(requests) // batch_size)
        longest = [len(row.prompt_token_ids) for batch in batches for row in batch]
        assert all(first >= second for first, second in pairwise(longest))


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_a_row_that_has_ended_takes_no_position_that_the_model_lacks(family):
    """Tables of learned positions end with the context, and rows that have ended go on with their batch."""
    rows = [*equal_lengths(2, 95, 40), *equal_lengths(2, 90, 40), *equal_lengths(3, 10, 40)]
    requests = [replace(row, row_index=index) for index, row in enumerate(rows)]
    expected = endings(list(make_engine(Target(tiny_model(family))).generate(requests)))
    assert endings(list(plain_engine(tiny_model(family), batch_size=8).generate(requests))) == expected


@pytest.mark.parametrize("family", ["llama", "bart"])
def test_what_a_model_would_choose_by_itself_is_left_out(family):
    model, requests = plain_tiny(family), make_requests(4)
    expected = alone(family, requests)
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=3.0,
        top_k=2,
        num_beams=2,
        repetition_penalty=5.0,
        no_repeat_ngram_size=1,
        min_new_tokens=90,
        max_length=3,
        forced_eos_token_id=5,
        num_return_sequences=2,
        bos_token_id=0,
        pad_token_id=0,
        decoder_start_token_id=2,
    )
    assert endings(list(plain_engine(model).generate(requests))) == expected


def test_an_encoder_decoder_keeps_the_token_that_it_was_trained_to_begin_with():
    model = plain_tiny("bart")
    model.generation_config.forced_bos_token_id = 7
    requests = make_requests(3, max_new_tokens=5)
    assert {c.token_ids[0] for c in plain_engine(model).generate(requests)} == {7}


def test_an_encoder_decoder_without_a_start_is_refused():
    model = plain_tiny("t5")
    model.config.decoder_start_token_id = None
    model.generation_config = GenerationConfig()
    with pytest.raises(ValueError, match="names no decoder_start_token_id"):
        as_plain(model)


def test_an_encoders_prompt_is_no_output_that_penalties_see():
    row = make_requests(1, max_new_tokens=6)[0]
    penalised = replace(row, repetition_penalty=100.0)
    first = {c.token_ids[0] for c in plain_engine(plain_tiny("t5")).generate([row])}
    assert first == {c.token_ids[0] for c in plain_engine(plain_tiny("t5")).generate([penalised])}


@pytest.mark.parametrize("family", ["llama", "mamba", "bart"])
def test_statistics_count_a_step_for_each_token_after_the_first(family):
    tokenizer = Letters()
    requests = mixed_requests()
    for completion in plain_engine(plain_tiny(family), tokenizer=tokenizer).generate(requests):
        statistics = completion.statistics
        num_tokens = len(completion.token_ids)
        assert num_tokens == 1 + statistics.num_target_steps - statistics.num_cut_target_tokens
        assert (statistics.num_spec_steps, statistics.num_draft_tokens) == (0, 0)
        assert sum(statistics.acceptance_histogram) == 0


def test_a_round_that_raises_ends_the_generation_and_the_engine_goes_on():
    engine, requests = plain_engine(plain_tiny("bloom")), make_requests(5)
    expected = endings(list(engine.generate(requests)))
    calls = []

    def stop_at_fourth():
        calls.append(None)
        if len(calls) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(engine.generate(requests, stop_at_fourth))
    assert len(calls) == 4
    assert endings(list(engine.generate(requests))) == expected


def test_rounds_are_the_forwards_of_each_batch():
    calls = []
    requests = make_requests(4, max_new_tokens=6)
    list(plain_engine(plain_tiny("bloom"), batch_size=2).generate(requests, lambda: calls.append(None)))
    assert len(calls) == 2 * 6


@pytest.mark.parametrize(
    ("family", "num_prompt", "num_tokens", "reason"),
    [("llama", 90, 6, "length"), ("bart", 90, 96, "length"), ("bart", 96, 96, "length"), ("t5", 120, 120, "length")],
)
def test_rows_end_where_the_model_has_no_more_positions(family, num_prompt, num_tokens, reason):
    request = Request(0, (5, 6, 7, 8) * (num_prompt // 4) + (9,) * (num_prompt % 4), 120, seed=1)
    (completion,) = plain_engine(plain_tiny(family)).generate([request])
    assert (len(completion.token_ids), completion.finish_reason) == (num_tokens, reason)


def test_a_job_may_hold_the_context_shorter():
    (completion,) = plain_engine(plain_tiny("bloom"), kv_length=20).generate([Request(0, (5,) * 8, 40, seed=1)])
    assert len(completion.token_ids) == 12


@pytest.mark.parametrize(
    ("family", "num_prompt", "message"),
    [
        ("llama", 96, "the model's context of 96"),
        ("bart", 97, "97 tokens, and the model's encoder takes 96"),
        ("t5", 0, "no tokens"),
    ],
)
def test_prompts_that_do_not_fit_are_refused_before_anything_runs(family, num_prompt, message):
    engine = plain_engine(plain_tiny(family))
    with pytest.raises(RowFailed, match=message):
        next(engine.generate([*make_requests(2), Request(9, (1,) * num_prompt, 4, seed=1)]))


ROPES = {
    "llama": {"max_position_embeddings": 32, "rope_scaling": {"rope_type": "dynamic", "factor": 3.0}},
    "phi3": {
        "max_position_embeddings": 96,
        "original_max_position_embeddings": 32,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [4.0] * 4},
    },
}


@pytest.mark.parametrize("family", sorted(ROPES))
def test_rows_past_the_original_context_are_those_of_a_model_that_saw_no_other(family):
    lengths = (32, 70, 33, 5, 20, 31, 50, 32)
    rows = [replace(equal_lengths(1, length, 12)[0], row_index=index) for index, length in enumerate(lengths)]
    rows += [replace(rows[3], row_index=8, max_new_tokens=26), replace(rows[5], row_index=9, max_new_tokens=1)]
    engine = plain_engine(plain_tiny(family, **ROPES[family]), batch_size=4)
    assert (engine.model.shared_length, engine.model.context_length) == (32, 96)
    assert endings(list(engine.generate(rows))) == alone(family, rows, **ROPES[family])
    assert endings(list(engine.generate(rows[::-1]))) == alone(family, rows, **ROPES[family])


def test_vocabularies_are_as_wide_as_the_logits():
    assert as_plain(plain_tiny("bart")).vocab_size == VOCAB_SIZE
    assert as_plain(plain_tiny("mamba")).vocab_size == VOCAB_SIZE


def test_padding_with_an_id_that_is_no_token_is_none():
    model = tiny_model("llama")
    expected = endings(list(plain_engine(tiny_model("llama")).generate(make_requests(4))))
    model.config.pad_token_id = -1
    assert endings(list(plain_engine(model).generate(make_requests(4)))) == expected
