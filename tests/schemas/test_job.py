"""A spec survives the way over a file unchanged, and a wrong one is refused by the name of its key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidJob
from schemas.job import JobSpec, RowParams

LEAST = {"input": "/in.parquet", "output": "/out", "model": "/model"}

names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1)
specs = st.builds(
    JobSpec,
    input=names,
    output=names,
    model=names,
    prompt_column=st.none() | st.text(min_size=1),
    messages_column=st.none(),
    system_prompt=st.none() | st.text(),
    temperature=st.floats(0, 100),
    top_k=st.integers(0, 2**31 - 1),
    top_p=st.floats(0, 1, exclude_min=True),
    seed=st.integers(0, 2**63 - 1),
    draft=st.sampled_from(["none", "ngram"]),
    num_draft_tokens=st.integers(1, 32),
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
        ({"batch_size": 0}, "batch_size: "),
        ({"prompt_column": "a", "messages_column": "b"}, "exclude each other"),
        ({"ngram_min": 4, "ngram_max": 2}, "ngram_min 4 is above ngram_max 2"),
        ({"temperature": float("nan")}, "temperature: "),
        ({"output": ""}, "output: "),
        ({"output": "a\nb"}, "output: "),
        ({"max_new_tokens": 2**31}, "max_new_tokens: "),
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


def test_the_window_is_one_without_drafts_and_k_plus_one_with_them() -> None:
    assert JobSpec.from_mapping(LEAST | {"draft": "none"}).window == 1
    assert JobSpec.from_mapping(LEAST | {"draft": "ngram", "num_draft_tokens": 5}).window == 6


def test_row_params_take_no_boolean_for_a_number() -> None:
    with pytest.raises(InvalidJob, match=r"max_new_tokens: .*not true or false"):
        RowParams.from_mapping({"max_new_tokens": True})


def test_row_params_refuse_what_a_row_may_not_set() -> None:
    with pytest.raises(InvalidJob, match="unknown option 'model'"):
        RowParams.from_mapping({"model": "other"})
