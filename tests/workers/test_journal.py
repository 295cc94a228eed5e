"""A journal: what it says of an attempt that died, and that it says nothing of one that ended in order."""

import os
from pathlib import Path
from typing import Any, cast

import pytest

from jobs.storage.layout import Layout
from schemas.errors import LeaseLost, ShardRetryable
from schemas.generation import SampleKey
from schemas.plan import ShardPlan
from workers.attempt import Attempt
from workers.journal import Death, History, Journal, read_history
from workers.stopping import WorkerStopping

A, B, C = (4, 0), (4, 1), (9, 0)


def attempt(output: Path, number: int, generation: int = 0) -> Attempt:
    nothing = cast(Any, None)
    shard = ShardPlan(shard_index=0, first_row=0, num_rows=16)
    return Attempt(nothing, nothing, shard, Layout(output), nothing, number, generation)


def journal_path(output: Path, number: int) -> Path:
    return Layout(output).wip_dir(0) / f"{number}.inflight"


def die(output: Path, number: int, *keys: SampleKey) -> None:
    """An attempt that is killed with these in the batch."""
    journal = Journal(attempt(output, number))
    journal.__enter__()
    journal.admit([*keys, C])
    journal.leave([C])


def end(output: Path, number: int, error: BaseException | None) -> None:
    try:
        with Journal(attempt(output, number)) as journal:
            journal.admit([A, B])
            if error is not None:
                raise error
    except BaseException as raised:
        assert raised is error


def history(output: Path) -> History:
    return read_history(attempt(output, 99))


def test_a_shard_without_attempts_has_no_deaths(tmp_path: Path) -> None:
    assert history(tmp_path) == History((), died_last=False)


def test_deaths_are_told_in_the_order_of_attempts(tmp_path: Path) -> None:
    die(tmp_path, 10, A)
    die(tmp_path, 9, B, A)
    assert history(tmp_path) == History((Death(frozenset([A, B])), Death(frozenset([A]))), died_last=True)
    assert read_history(attempt(tmp_path, 10)).deaths == (Death(frozenset([A, B])),)
    assert read_history(attempt(tmp_path, 99, generation=1)).deaths == ()


def test_an_error_that_nobody_foresaw_is_told_in_one_line(tmp_path: Path) -> None:
    end(tmp_path, 1, ZeroDivisionError("division\nby zero"))
    assert history(tmp_path).deaths == (Death(frozenset([A, B]), "ZeroDivisionError: division by zero"),)


@pytest.mark.parametrize("error", [None, LeaseLost("x"), WorkerStopping("x"), KeyboardInterrupt(), SystemExit(1)])
def test_what_ends_in_order_or_from_outside_is_no_death(tmp_path: Path, error: BaseException | None) -> None:
    die(tmp_path, 1, A)
    end(tmp_path, 2, error)
    assert history(tmp_path) == History((Death(frozenset([A])),), died_last=False)


def test_one_that_died_with_an_empty_batch_blames_nobody(tmp_path: Path) -> None:
    die(tmp_path, 1)
    assert history(tmp_path) == History((), died_last=False)


@pytest.mark.parametrize("torn", [b'\n{"admitted": [[1, 0]', b"\n{", b"\n"])
def test_a_torn_line_spoils_no_other(tmp_path: Path, torn: bytes) -> None:
    with open_journal(tmp_path) as journal:
        journal.admit([A])
        with journal_path(tmp_path, 1).open("ab") as file:
            file.write(torn)
        assert history(tmp_path).deaths == (Death(frozenset([A])),)
    assert history(tmp_path).deaths == ()


def test_a_full_disk_is_no_rows_fault(tmp_path: Path) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    with (
        pytest.raises(ShardRetryable, match=r"cannot write its journal: .*No space left"),
        open_journal(tmp_path) as one,
    ):
        one.admit([A])
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, one._descriptor)
        os.close(full)
        one.admit([B])
    assert not journal_path(tmp_path, 1).exists()
    assert history(tmp_path) == History((), died_last=False)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def open_journal(output: Path) -> Journal:
    return Journal(attempt(output, 1))
