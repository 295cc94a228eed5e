"""A spec survives the way over a file unchanged, and a wrong one is refused by the name of its key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidJob
from schemas.job import JobSpec, RowParams

LEAST = {"input": "/in.parquet", "output": "/out", "model": "/model"}
EXACT = {"deterministic": True, "kv_length": 64, "num_threads": 1, "dtype": "float32"}

not_negative = st.integers(0, 2**31 - 1)
penalties = st.floats(-100, 100)
texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=3).map(tuple)
names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1)
specs = st.builds(
    JobSpec,
    input=names,
    output=names,
    model=names,
    prompt_column=st.none() | st.text(min_size=1),
    messages_column=st.none(),
    system_prompt=st.none() | st.text(),
    max_new_tokens=st.integers(10, 2**31 - 1),
    min_new_tokens=st.integers(0, 10),
    temperature=st.floats(0, 100),
    top_k=not_negative,
    top_p=st.floats(0, 1, exclude_min=True),
    min_p=st.floats(0, 1),
    repetition_penalty=st.floats(0.01, 100),
    presence_penalty=penalties,
    frequency_penalty=penalties,
    logit_bias=st.dictionaries(not_negative, st.floats(-100, 100), max_size=4),
    bad_words=texts,
    stop=texts,
    stop_token_ids=st.lists(not_negative, max_size=4).map(tuple),
    ignore_eos=st.booleans(),
    n=st.integers(1, 1024),
    seed=st.integers(0, 2**63 - 1),
    draft=st.sampled_from(["none", "ngram", "suffix", "auto"]),
    draft_lengths=st.lists(st.integers(0, 32), min_size=1).map(tuple),
    suffix_depth=st.integers(1, 2**31 - 1),
    suffix_tokens=not_negative,
    verification=st.sampled_from(["coupled", "rejection"]),
    kv_length=st.none() | st.integers(1, 2**31 - 1),
)


@given(specs)
def test_a_spec_and_its_digest_survive_json(spec: JobSpec) -> None:
    back = JobSpec.from_json(spec.to_json())
    assert back == spec
    assert back.digest() == spec.digest()


def test_the_digest_tells_specs_apart() -> None:
    assert JobSpec.from_mapping(LEAST).digest() != JobSpec.from_mapping(LEAST | {"seed": 1}).digest()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"max_tokens": 3}, "unknown option 'max_tokens'"),
        ({"temperature": -1}, "temperature: "),
        ({"top_p": 0}, "top_p: "),
        ({"draft": "magic"}, "draft: "),
        ({"draft_temperature": 0.5}, "draft_temperature is not used by draft ngram"),
        ({"vocabulary": "intersection"}, "vocabulary intersection is of a draft_model"),
        ({"engine": "generate", "verification": "rejection"}, "verification rejection needs engine speculative"),
        ({"logit_bias": {"5": 1e308}}, "logit_bias.5: "),
        ({"repetition_penalty": 1e-40}, "repetition_penalty: "),
        ({"draft_lengths": []}, "draft_lengths: List should have at least 1 item"),
        ({"draft_revision": "main"}, "draft_revision is of a draft_model"),
        ({"batch_size": 0}, "batch_size: "),
        ({"prompt_column": "a", "messages_column": "b"}, "exclude each other"),
        ({"ngram_min": 4, "ngram_max": 2}, "ngram_min 4 is above ngram_max 2"),
        ({"temperature": float("nan")}, "temperature: "),
        ({"output": ""}, "output: "),
        ({"output": "a\nb"}, "output: "),
        ({"max_new_tokens": 2**31}, "max_new_tokens: "),
        ({"min_new_tokens": 5, "max_new_tokens": 4}, "min_new_tokens 5 is above max_new_tokens 4"),
        ({"min_p": 1.5}, "min_p: "),
        ({"repetition_penalty": 0}, "repetition_penalty: "),
        ({"presence_penalty": 101}, "presence_penalty: "),
        ({"logit_bias": {"x": 1}}, "logit_bias.x"),
        ({"logit_bias": {-1: 1}}, "logit_bias.-1"),
        ({"logit_bias": {1: float("inf")}}, "logit_bias.1: "),
        ({"stop": [""]}, "stop.0: "),
        ({"bad_words": "no"}, "bad_words: "),
        ({"stop_token_ids": [-1]}, "stop_token_ids.0: "),
        ({"n": 0}, "n: "),
        ({"num_draft_tokens": 4}, "unknown option 'num_draft_tokens'"),
        ({"draft_lengths": []}, "draft_lengths: "),
        ({"draft_lengths": [33]}, "draft_lengths.0: "),
        ({"draft": "model"}, "draft model needs draft_model"),
        ({"draft_model": "m"}, "draft_model is not used by draft ngram"),
        ({"draft": "early-exit"}, "draft early-exit needs exit_layer"),
        ({"exit_layer": 3}, "exit_layer is not used by draft ngram"),
        ({"engine": "generate", "draft": "ngram"}, "engine generate takes no draft ngram"),
        (EXACT | {"engine": "generate"}, "deterministic needs engine speculative"),
        (EXACT | {"verification": "rejection"}, "deterministic needs verification coupled"),
        (EXACT | {"kv_length": None}, "deterministic needs kv_length"),
        (EXACT | {"num_threads": None}, "deterministic needs num_threads"),
        (EXACT | {"dtype": "auto"}, "deterministic needs a dtype other than auto"),
    ],
)
def test_a_wrong_spec_is_refused_in_one_line_that_names_the_key(change: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidJob) as refusal:
        JobSpec.from_mapping(LEAST | change)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_spec_never_changes() -> None:
    spec = JobSpec.from_mapping(LEAST)
    with pytest.raises(ValueError, match="frozen"):
        spec.seed = 2  # type: ignore[misc]


def test_draft_lengths_ascend_once_each_however_they_are_given() -> None:
    assert JobSpec.from_mapping(LEAST | {"draft_lengths": [8, 0, 2, 8]}).draft_lengths == (0, 2, 8)


def test_generate_drafts_nothing_unless_it_is_asked_to() -> None:
    assert JobSpec.from_mapping(LEAST | {"engine": "generate"}).draft == "none"


def test_row_params_take_no_boolean_for_a_number() -> None:
    with pytest.raises(InvalidJob, match=r"max_new_tokens: .*not true or false"):
        RowParams.from_mapping({"max_new_tokens": True})


def test_row_params_take_nothing_but_a_boolean_for_one() -> None:
    assert RowParams.from_mapping({"ignore_eos": False}).ignore_eos is False
    with pytest.raises(InvalidJob, match=r"ignore_eos: true or false is needed"):
        RowParams.from_mapping({"ignore_eos": 1})


def test_row_params_take_one_text_for_a_list_of_it_and_the_forms_that_parquet_has_for_a_mapping() -> None:
    assert RowParams.from_mapping({"stop": "a", "bad_words": "b"}) == RowParams(stop=("a",), bad_words=("b",))
    expected = RowParams(logit_bias={5: 1.5})
    for form in ({"5": 1.5}, {5: 1.5}, [("5", 1.5)], {"5": 1.5, "6": None}):
        assert RowParams.from_mapping({"logit_bias": form}) == expected


def test_row_params_refuse_what_a_row_may_not_set() -> None:
    with pytest.raises(InvalidJob, match="unknown option 'model'"):
        RowParams.from_mapping({"model": "other"})
