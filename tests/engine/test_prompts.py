import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidJob, RowFailed
from schemas.generation import InputRow
from schemas.job import JobSpec, RowParams, SamplingSpec
from schemas.seeds import derive_row_seed
from tests.engine.tiny_folder import CHAT_TEMPLATE, tiny_tokenizer
from workers.engine.prompts import encode_row
from workers.engine.row_params import row_params

pytestmark = pytest.mark.engine

SPEC = JobSpec(input="in", output="out", model="m", max_new_tokens=64, temperature=0.5, top_k=4, top_p=0.9, seed=3)
TOKENIZER = tiny_tokenizer()
CONTEXT_LENGTH = 50
VOCAB_SIZE = len(TOKENIZER)


def encode_samples(spec=SPEC, tokenizer=TOKENIZER, **row):
    return encode_row(InputRow(**{"row_index": 7, **row}), spec, tokenizer, CONTEXT_LENGTH, VOCAB_SIZE)


def encode(spec=SPEC, tokenizer=TOKENIZER, **row):
    (request,) = encode_samples(spec, tokenizer, **row)
    return request


def text_of(request):
    return TOKENIZER.decode(request.prompt_token_ids)


def failure(spec=SPEC, **row):
    with pytest.raises(RowFailed) as caught:
        encode(spec, **row)
    return caught.value.kind, str(caught.value)


def user(text):
    return {"role": "user", "content": text}


def test_a_prompt_is_taken_as_it_is_with_the_tokenizers_special_tokens():
    assert encode(prompt="a b").prompt_token_ids == tuple(TOKENIZER("a b").input_ids)
    assert text_of(encode(prompt="a b")) == "<s>a b"


def test_a_job_minimum_above_a_rows_own_maximum_fails_the_row():
    spec = SPEC.model_copy(update={"min_new_tokens": 5})
    assert failure(spec, prompt="a", params={"max_new_tokens": 4}) == (
        "bad_params",
        "params: min_new_tokens 5 is above max_new_tokens 4",
    )


def test_messages_go_through_the_chat_template_once():
    request = encode(messages=[user("hi"), {"role": "assistant", "content": "yo"}, user("bye")])
    assert text_of(request) == "<s>[user]hi[assistant]yo[user]bye[assistant]"


def test_null_fields_of_structs_do_not_reach_the_template():
    bare = encode(messages=[user("hi")])
    assert encode(messages=[user("hi") | {"name": None, "tool_calls": None}]) == bare


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([user("hi")], "<s>[system]be brief[user]hi[assistant]"),
        ([{"role": "system", "content": "be long"}, user("hi")], "<s>[system]be long[user]hi[assistant]"),
    ],
)
def test_the_system_prompt_of_the_job_comes_first_where_messages_have_none(messages, expected):
    spec = SPEC.model_copy(update={"system_prompt": "be brief"})
    assert text_of(encode(spec, messages=messages)) == expected


def test_messages_without_a_chat_template_are_the_jobs_fault():
    tokenizer = tiny_tokenizer(chat_template=None)
    with pytest.raises(InvalidJob, match=r"no chat template for messages.*--prompt-column"):
        encode(tokenizer=tokenizer, messages=[user("hi")])


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([{"role": "robot", "content": "hi"}], "the chat template refuses the messages: unknown role robot"),
        ([{"role": "a\nb", "content": "hi"}], "the chat template refuses the messages: unknown role a b"),
        ([user("hi"), {"role": None, "content": "hi"}], "message 1 has no role"),
        ([{"role": "user", "content": None}], "message 0 has no content"),
        ([user(12)], "the chat template refuses the messages: "),
        (["hi"], "message 0 is str, not a struct"),
        ([None], "message 0 is NoneType, not a struct"),
    ],
)
def test_bad_messages_fail_their_row(messages, message):
    kind, found = failure(messages=messages)
    assert kind == "bad_messages"
    assert found.startswith(message)


@pytest.mark.parametrize("row", [{"prompt": ""}, {"prompt": None}, {"messages": []}])
def test_nothing_to_say_fails_its_row(row):
    assert failure(**row)[0] == "empty_prompt"


def test_a_prompt_that_fills_the_context_fails_its_row_and_names_both_lengths():
    assert len(encode(prompt="a" * (CONTEXT_LENGTH - 2)).prompt_token_ids) == CONTEXT_LENGTH - 1
    kind, message = failure(prompt="a" * (CONTEXT_LENGTH - 1))
    assert kind == "prompt_too_long"
    assert f"{CONTEXT_LENGTH} tokens" in message and f"context of {CONTEXT_LENGTH}" in message


def test_what_the_reader_found_is_passed_on():
    assert failure(error=("null_prompt", "the prompt is null")) == ("null_prompt", "the prompt is null")


OPTIONS = {
    "max_new_tokens": 9,
    "min_new_tokens": 2,
    "temperature": 0.5,
    "top_k": 4,
    "top_p": 0.9,
    "min_p": 0.1,
    "repetition_penalty": 1.5,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "logit_bias": {9: 1.0, 4: -2.0},
    "bad_words": ("b",),
    "stop": ("stop", "here"),
    "stop_token_ids": (4, 5),
    "ignore_eos": True,
}
OFF = {
    "max_new_tokens": 5,
    "min_new_tokens": 0,
    "temperature": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "logit_bias": {},
    "bad_words": [],
    "stop": [],
    "stop_token_ids": [],
    "ignore_eos": False,
}
EVERY_SAMPLING_OPTION = SPEC.model_copy(update=OPTIONS)


def test_the_options_here_are_all_there_are():
    assert OPTIONS.keys() == OFF.keys() == SamplingSpec.model_fields.keys() - {"n"}
    assert RowParams.model_fields.keys() == OPTIONS.keys() | {"n", "seed"}


def as_in_request(options):
    """Of a request: pairs in the order of their tokens, and texts as their tokens."""
    bias = tuple(sorted(options["logit_bias"].items()))
    words = tuple(ids for text in options["bad_words"] for ids in (tokens_of(text), tokens_of(f" {text}")))
    tuples = {name: tuple(options[name]) for name in ("stop", "stop_token_ids")}
    return {**options, **tuples, "logit_bias": bias, "bad_words": words}


def tokens_of(text):
    return tuple(TOKENIZER(text, add_special_tokens=False).input_ids)


def options_of(request):
    return {name: getattr(request, name) for name in OPTIONS}


def test_a_row_without_params_has_the_jobs_options_and_its_own_seed():
    request = encode(EVERY_SAMPLING_OPTION, prompt="a")
    assert options_of(request) == as_in_request(OPTIONS)
    assert (request.key, request.seed) == ((7, 0), derive_row_seed(3, 7))


@pytest.mark.parametrize("form", [dict, json.dumps], ids=["mapping", "JSON text"])
@pytest.mark.parametrize(("job", "row"), [(OFF | {"max_new_tokens": 9}, OPTIONS), (OPTIONS, OFF)], ids=["on", "off"])
def test_params_override_each_option_of_the_job(form, job, row):
    spec = JobSpec.from_mapping({**SPEC.model_dump(), **job})
    request = encode(spec, prompt="a", params=form(row | {"seed": 0}))
    assert options_of(request) == as_in_request(row)
    assert request.seed == 0


def test_a_row_has_n_samples_that_differ_in_their_seeds_alone():
    samples = encode_samples(SPEC.model_copy(update={"n": 3}), prompt="a")
    assert [sample.key for sample in samples] == [(7, 0), (7, 1), (7, 2)]
    assert [sample.seed for sample in samples] == [derive_row_seed(3, 7, index) for index in range(3)]
    assert {replace(sample, sample_index=0, seed=0) for sample in samples} == {replace(samples[0], seed=0)}


def test_a_seed_in_params_is_the_first_samples_and_the_others_follow_from_it():
    samples = encode_samples(prompt="a", params={"seed": 11, "n": 3})
    assert [sample.seed for sample in samples] == [11, derive_row_seed(11, 7, 1), derive_row_seed(11, 7, 2)]
    assert encode(prompt="a", params={"seed": 11}) == samples[0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"logit_bias": {3: 1.0, 999: 1.0}}, "--logit-bias: there is no token 999; the model has 98"),
        ({"stop_token_ids": (98,)}, "--stop-token-ids: there is no token 98; the model has 98"),
    ],
)
def test_a_token_of_the_job_that_the_model_lacks_is_the_jobs_fault(options, says):
    assert encode(SPEC.model_copy(update={"stop_token_ids": (97,)}), prompt="a").stop_token_ids == (97,)
    with pytest.raises(InvalidJob, match=says):
        encode(SPEC.model_copy(update=options), prompt="a", params={"logit_bias": {}, "stop_token_ids": []})


@pytest.mark.parametrize("params", [None, "", " ", {}, "{}", "null", {"seed": None, "top_k": None}])
def test_params_that_say_nothing_change_nothing(params):
    assert encode(prompt="a", params=params) == encode(prompt="a")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"temperatur": 1.0}, "temperatur"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"seed": 2**63}, "seed"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"max_new_tokens": 65}, "max_new_tokens 65 is above the job's 64; raise --max-new-tokens"),
        ({"temperature": "warm"}, "temperature"),
        ('{"temperature": NaN}', "temperature"),
        ("{", "params is not JSON"),
        ("[" * 100_000, "params is not JSON"),
        ("[1]", "params must be a mapping or a JSON object, not list"),
        (5, "params must be a mapping or a JSON object, not int"),
        ({"min_new_tokens": 65}, "min_new_tokens 65 is above max_new_tokens 64"),
        ({"min_new_tokens": 5, "max_new_tokens": 4}, "min_new_tokens 5 is above max_new_tokens 4"),
        ({"min_p": 2}, "min_p"),
        ({"n": 0}, "n: "),
        ({"stop": [""]}, "stop.0"),
        ({"stop": ["a", None]}, "stop.1"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"logit_bias": {"a": 1}}, "logit_bias.a"),
        ({"logit_bias": {"1000": 1}}, "logit_bias: there is no token 1000; the model has 98, from 0"),
        ({"stop_token_ids": [5, 98]}, "stop_token_ids: there is no token 98"),
        ({"logit_bias": 5}, "logit_bias"),
        ({"logit_bias": [5]}, "logit_bias"),
    ],
)
def test_bad_params_fail_their_row_and_name_the_key(params, message):
    kind, found = failure(prompt="a", params=params)
    assert kind == "bad_params"
    assert message in found


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(JSON_VALUES | st.dictionaries(st.sampled_from([*OPTIONS, "n", "seed", "other"]), JSON_VALUES))
def test_params_of_any_form_are_taken_or_fail_their_row(params):
    for form in (params, json.dumps(params)):
        try:
            assert row_params(form, SPEC).max_new_tokens in (None, *range(1, 65))
        except RowFailed as failed:
            assert failed.kind == "bad_params" and "\n" not in str(failed)


@given(st.lists(JSON_VALUES | st.dictionaries(st.sampled_from(["role", "content", "x"]), JSON_VALUES), max_size=3))
def test_messages_of_any_form_are_taken_or_fail_their_row(messages):
    try:
        encode(messages=messages)
    except RowFailed as failed:
        assert failed.kind in ("bad_messages", "empty_prompt", "prompt_too_long") and "\n" not in str(failed)


def test_the_template_of_these_tests_is_the_one_that_is_tested():
    assert TOKENIZER.chat_template == CHAT_TEMPLATE
