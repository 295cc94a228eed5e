"""Row seeds depend on job, row and sample, and on nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.seeds import derive_row_seed

seeds = st.integers(0, 2**63 - 1)


@given(seeds, seeds, st.integers(0, 1000))
def test_a_row_seed_fits_the_output_column(job_seed: int, row_index: int, sample_index: int) -> None:
    assert 0 <= derive_row_seed(job_seed, row_index, sample_index) < 2**63


def test_neighbouring_jobs_rows_and_samples_share_no_seed() -> None:
    derived = {derive_row_seed(j, r, s) for j in range(20) for r in range(20) for s in range(20)}
    assert len(derived) == 20**3


def test_row_seeds_stay_what_they_are_across_releases() -> None:
    assert derive_row_seed(0, 0) == 5821550160627889523
