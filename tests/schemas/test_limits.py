"""Limits are read as they are typed, and decide nothing about what a job is."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.plan.differences import spec_difference
from jobs.plan.planning import job_id_of
from schemas.errors import InvalidJob
from schemas.job import JobSpec
from schemas.limits import Limits, most_errors

SPEC = JobSpec.from_mapping({"input": "/in.parquet", "output": "/out", "model": "/model"})


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_count_is_that_many_rows_whatever_there_are(count: int, num_rows: int) -> None:
    assert most_errors(str(Limits(max_errors=str(count)).max_errors), num_rows) == count


@given(st.integers(0, 1000), st.integers(0, 10**9))
def test_a_share_is_exact(thousandths: int, num_rows: int) -> None:
    share = f"{thousandths // 10}.{thousandths % 10}%"
    assert most_errors(str(Limits(max_errors=share).max_errors), num_rows) * 1000 == thousandths * num_rows


def test_a_share_is_no_rounded_number_of_rows() -> None:
    assert most_errors("5%", 30) == Decimal("1.5")


@pytest.mark.parametrize("value", ["", "-1", "1.5", "101%", "%", "5 %", "1e3", "many", "1" * 13, True, 1.0])
def test_what_is_neither_a_count_nor_a_share_is_refused(value: object) -> None:
    with pytest.raises(InvalidJob, match="max_errors: "):
        Limits.from_mapping({"max_errors": value})


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "soon"])
def test_what_is_no_time_is_refused(value: object) -> None:
    with pytest.raises(InvalidJob, match="timeout_seconds: "):
        Limits.from_mapping({"timeout_seconds": value})


def test_a_count_may_be_a_number_in_a_spec_file() -> None:
    assert Limits.from_mapping({"max_errors": 7}).max_errors == "7"


def test_a_job_is_the_same_one_with_other_limits() -> None:
    limited = SPEC.model_copy(update={"max_errors": "5%", "timeout_seconds": 60.0})
    assert limited != SPEC
    assert limited.digest() == SPEC.digest()
    assert job_id_of(limited, []) == job_id_of(SPEC, [])
    assert spec_difference(SPEC, limited) is None
