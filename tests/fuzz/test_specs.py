"""Spec files of any bytes: refused in one line that names the option, or a job."""

import json
import math
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.cli.errors import Invocation, run_translating_errors
from jobs.cli.spec import build_spec
from jobs.submit import plan_job
from schemas.errors import InvalidJob
from schemas.job import JobSpec
from tests.fuzz.profile import fuzzed
from tests.toy import make_model, write_input

LONGEST_LINE = 2100
DEEP = "[" * 100_000 + "]" * 100_000
NUMBERS = st.one_of(
    st.integers(-2, 3), st.sampled_from([2**31, 2**63, 2**64, -(2**70), 10**400]), st.floats(allow_nan=True)
)
TEXTS = st.text(max_size=20) | st.sampled_from(["", "\ud800", "\x00", "a\nb", "…" * 30_000, "memory://x", "x::y", "*"])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=8
)
KEYS = st.sampled_from(sorted(JobSpec.model_fields)) | TEXTS


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("specs")
    write_input(made / "in.parquet", ["a", "b", None])
    make_model(made / "model")
    return made


def plan_or_refuse(directory: Path, data: bytes) -> JobSpec | None:
    """The spec of the job that the file makes; None where it is refused as the command line does it, in one line."""
    path, made = directory / "spec.json", list[JobSpec]()
    path.write_bytes(data)

    def call() -> None:
        spec = build_spec({}, path)
        if Path(spec.model).is_absolute():  # no hub is asked
            plan_job(spec)
        made.append(spec)

    with redirect_stderr(StringIO()) as shown:
        code = run_translating_errors(call, Invocation())
    line = shown.getvalue()
    assert code == (0 if made else 2), line[:500]
    assert line.count("\n") == len(line.splitlines()) == (not made) and len(line) < LONGEST_LINE
    return made[0] if made else None


def usual(directory: Path) -> dict[str, Any]:
    return {"input": str(directory / "in.parquet"), "model": str(directory / "model"), "output": str(directory / "out")}


@fuzzed(300)
@example(changes={"output_prefix": "\ud800"})
@example(changes={"system_prompt": "\udfff"})
@example(changes={"model": "/" + "a" * 300})
@example(changes={"model": "/" + "a/" * 3000})
@example(changes={"output": "a" * 30_000})
@example(changes={"input": "a" * 30_000})
@example(changes={"revision": "a" * 30_000})
@example(changes={"prompt_column": "a" * 30_000})
@given(changes=st.dictionaries(KEYS, VALUES, min_size=1, max_size=3))
def test_a_spec_of_any_values_makes_a_job_or_a_line(directory: Path, changes: dict[str, Any]) -> None:
    spec = plan_or_refuse(directory, json.dumps({**usual(directory), **changes}).encode())
    if spec is not None:
        assert set(changes) <= set(JobSpec.model_fields)
        assert JobSpec.from_json(spec.to_json()) == spec
        assert all(math.isfinite(value) for value in spec.model_dump().values() if isinstance(value, float))


@fuzzed(200)
@given(place=st.floats(0, 1), bits=st.integers(0, 255), length=st.integers(0, 30), cut=st.booleans())
def test_a_spec_of_damaged_bytes_makes_a_job_or_a_line(
    directory: Path, place: float, bits: int, length: int, cut: bool
) -> None:
    data = bytearray(json.dumps({**usual(directory), "temperature": 0.5, "stop": ["x"], "seed": 3}).encode())
    start = int(place * len(data))
    data[start : start + length] = bytes([bits]) * (0 if cut else length)
    plan_or_refuse(directory, bytes(data))


@fuzzed(100)
@example(data=DEEP.encode())
@example(data=b'{"seed": 1' + b"0" * 5000 + b"}")
@example(data=b'{"seed": NaN, "temperature": Infinity}')
@example(data=b'{"model": "\\ud800"}')
@example(data=b'\xef\xbb\xbf{"seed": 1}')
@example(data="{}".encode("utf-16"))
@example(data=b'{"a": ' * 5000 + b"1" + b"}" * 5000)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_refused_in_a_line(directory: Path, data: bytes) -> None:
    assert plan_or_refuse(directory, data) is None


def test_an_option_that_is_given_twice_is_refused(directory: Path) -> None:
    (directory / "spec.json").write_text('{"seed": 1, "model": "m", "seed": 2}')
    with pytest.raises(InvalidJob, match=r"spec\.json: 'seed' is given twice"):
        build_spec({}, directory / "spec.json")
