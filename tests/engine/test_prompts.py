import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidJob, RowFailed
from schemas.generation import InputRow
from schemas.job import JobSpec
from schemas.seeds import derive_row_seed
from tests.engine.tiny_folder import CHAT_TEMPLATE, tiny_tokenizer
from workers.engine.prompts import encode_row, row_params

pytestmark = pytest.mark.engine

SPEC = JobSpec(input="in", output="out", model="m", max_new_tokens=64, temperature=0.5, top_k=4, top_p=0.9, seed=3)
TOKENIZER = tiny_tokenizer()
CONTEXT_LENGTH = 50


def encode(spec=SPEC, tokenizer=TOKENIZER, **row):
    return encode_row(InputRow(**{"row_index": 7, **row}), spec, tokenizer, CONTEXT_LENGTH)


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


def test_a_row_without_params_has_the_jobs_options_and_its_own_seed():
    request = encode(prompt="a")
    assert (request.max_new_tokens, request.temperature, request.top_k, request.top_p) == (64, 0.5, 4, 0.9)
    assert request.seed == derive_row_seed(3, 7)
    assert request.row_index == 7


OVERRIDES = {"max_new_tokens": 5, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 0}


@pytest.mark.parametrize("form", [dict, json.dumps], ids=["mapping", "JSON text"])
def test_params_override_the_job_even_with_zeros(form):
    request = encode(prompt="a", params=form(OVERRIDES))
    found = (request.max_new_tokens, request.temperature, request.top_k, request.top_p, request.seed)
    assert found == (5, 0.0, 0, 1.0, 0)


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


@given(JSON_VALUES | st.dictionaries(st.sampled_from([*OVERRIDES, "other"]), JSON_VALUES))
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
