"""Several samples of a row: one row of the part each, saved and resumed each by itself."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.control.queue import Queue
from jobs.control.store import Store
from jobs.plan.planning import load_plan
from jobs.settings import Settings
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipts
from schemas.errors import ShardRetryable
from schemas.generation import Completion, Request, SampleKey
from schemas.message import ShardMessage
from tests.oracle import check_output
from tests.toy import ToySession, expected_tokens, toy_spec
from tests.workers.attempts import CountingSession, resumed, session_of, spec_of, submitted
from workers.context import OnAdmit, WorkerContext, WorkerOptions
from workers.lease import Lease
from workers.shard import run_shard

pytestmark = pytest.mark.services


def test_samples_of_rows_are_rows_of_the_part_and_counted(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue, context: WorkerContext
) -> None:
    spec = toy_spec(tmp_path, 3, prompts=["a", None, "b"], n=3)
    (message,) = submitted(spec, settings, store, queue)
    run_shard(message, context)
    assert check_output(spec).num_rows == 7
    receipt = read_receipts(Layout(Path(spec.output)))[0]
    assert (receipt.num_rows, receipt.num_samples, receipt.num_ok, receipt.num_failed) == (3, 7, 6, 1)
    assert receipt.statistics.num_completion_tokens == 6 * spec.max_new_tokens
    assert receipt.speculation == {"rounds_by_k": {"none": {"0": 4}}}
    assert receipt.shapes == {"num_new": 0}


def test_a_text_that_the_engine_has_cut_is_the_completion(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue
) -> None:
    class Cutting(ToySession):
        def generate(
            self, requests: Sequence[Request], on_round: Callable[[], None], on_admit: OnAdmit
        ) -> Iterator[Completion]:
            for completion in super().generate(requests, on_round, on_admit):
                yield replace(completion, text="" if completion.row_index == 0 else None)

        def speculation(self) -> dict[str, Any]:
            return {}

        def shapes(self) -> dict[str, Any]:
            return {}

    context = WorkerContext(settings, store, WorkerOptions(name="w", device="cpu"), lambda spec, _: Cutting(spec))
    spec = toy_spec(tmp_path, 2, save_token_ids=True)
    (message,) = submitted(spec, settings, store, queue)
    run_shard(message, context)
    table = pq.read_table(Path(spec.output) / "part-00000.parquet")
    tokens = [list(expected_tokens(spec, row)) for row in range(2)]
    assert table["completion_token_ids"].to_pylist() == tokens
    assert table["completion"].to_pylist() == ["", " ".join(f"t{token}" for token in tokens[1])]
    receipt = read_receipts(Layout(Path(spec.output)))[0]
    assert receipt.speculation is None and receipt.shapes is None


def test_a_session_that_leaves_a_sample_out_commits_nothing(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue
) -> None:
    class Forgetful(ToySession):
        def generate(
            self, requests: Sequence[Request], on_round: Callable[[], None], on_admit: OnAdmit
        ) -> Iterator[Completion]:
            return super().generate([request for request in requests if request.key != (2, 1)], on_round, on_admit)

    context = WorkerContext(settings, store, WorkerOptions(name="w", device="cpu"), lambda spec, _: Forgetful(spec))
    spec = toy_spec(tmp_path, 4, n=2)
    (message,) = submitted(spec, settings, store, queue)
    with pytest.raises(ShardRetryable, match=r"shard 0: no completion of \[\(2, 1\)\]"):
        run_shard(message, context)
    assert read_receipts(Layout(Path(spec.output))) == {}


def test_of_a_row_begun_only_the_missing_samples_are_generated(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue, context: WorkerContext
) -> None:
    spec = toy_spec(tmp_path, 4, n=3, prompts=["a", "b", None, "d"])
    (message,) = submitted(spec, settings, store, queue)
    session = session_of(context, spec_of(message, store))

    def stop_in_row_0(row_index: int) -> None:
        if session.samples[-1] == (0, 1):
            raise ShardRetryable("out of memory")

    session.after_row = stop_in_row_0
    with pytest.raises(ShardRetryable, match="out of memory"):
        run_shard(message, context)
    assert session.samples == [(1, 0), (0, 2), (0, 1)]
    session.after_row, session.samples = lambda row_index: None, []
    run_shard(resumed(message, settings, store), context)
    assert sorted(session.samples) == [(0, 0), (1, 1), (1, 2), (3, 0), (3, 1), (3, 2)]
    check_output(spec)


def test_a_worker_killed_in_the_midst_of_a_rows_samples_loses_and_doubles_none(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue, context: WorkerContext
) -> None:
    spec = toy_spec(tmp_path, 3, n=3)
    (message,) = submitted(spec, settings, store, queue)
    worker = multiprocessing.get_context("spawn").Process(target=be_killed_in_a_row, args=(message, settings))
    worker.start()
    worker.join()
    assert worker.exitcode == -signal.SIGKILL
    session = session_of(context, spec_of(message, store))
    time.sleep(settings.lease_seconds)
    run_shard(resumed(message, settings, store), context)
    assert sorted(session.samples) == [(0, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    check_output(spec)


def test_a_row_is_done_once_all_its_samples_are(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue, context: WorkerContext
) -> None:
    spec = toy_spec(tmp_path, 3, n=2, prompts=["a", None, "c"])
    (message,) = submitted(spec, settings, store, queue)
    session = session_of(context, spec_of(message, store))
    reported: list[tuple[SampleKey, int]] = []
    report = Lease.report

    def look(lease: Lease, **changes: Any) -> None:
        report(lease, **changes)
        if session.samples:
            reported.append((session.samples[-1], lease.progress.num_rows_done))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lease, "report", look)
        run_shard(message, context)
    done = dict(reversed(reported))  # as first reported
    assert done == {(2, 1): 1, (2, 0): 2, (0, 1): 2, (0, 0): 3}


def be_killed_in_a_row(message: ShardMessage, settings: Settings) -> None:
    """In a process of its own: the third sample of the first batch is saved, and is the last."""
    session = CountingSession(load_plan(Path(store_of(settings).job(message.job_id).output)).spec)

    def after_row(row_index: int) -> None:
        if session.samples[-1] == (0, 1):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(settings.checkpoint_seconds)

    session.after_row = after_row
    options = WorkerOptions(name="doomed", device="cpu")
    run_shard(message, WorkerContext(settings, store_of(settings), options, lambda spec, threads: session))


def store_of(settings: Settings) -> Store:
    assert settings.redis_url is not None
    return Store(settings, settings.redis_url)
