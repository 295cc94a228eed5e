"""Rows that end their worker process, for real: as the OOM killer does, by breaking it, or by never returning."""

from pathlib import Path

import pytest

from jobs.control.queue import Queue
from jobs.control.store import Store
from jobs.settings import Settings
from jobs.storage.layout import Layout
from jobs.storage.receipts import read_receipts
from tests.integration.conftest import Cluster, assert_nothing_left
from tests.oracle import check_output
from tests.toy import toy_spec

pytestmark = pytest.mark.services


def test_rows_that_end_their_worker_are_errors_and_the_rest_of_their_shard_is_delivered(
    cluster: Cluster, tmp_path: Path
) -> None:
    (node,) = cluster.start("w1")
    prompts = ["killed" if row == 1 else "broken" if row == 6 else f"prompt {row}" for row in range(8)]
    options = {"crash_at_prompt": "killed", "segfault_at_prompt": "broken"}
    spec = toy_spec(tmp_path, 8, prompts, shard_rows=8, batch_size=2, **options)
    status = cluster.wait_for(cluster.submit(spec), seconds=120)
    assert (status.num_ok, status.num_failed) == (6, 2)
    rows = check_output(spec).select(["row_index", "error_kind"]).to_pylist()
    assert [row["row_index"] for row in rows if row["error_kind"] == "poison_row"] == [1, 6]
    (receipt,) = read_receipts(Layout(Path(spec.output))).values()
    assert receipt.attempt == 6
    assert "signal 11 (SIGSEGV)" in node.log and "signal 9 (SIGKILL)" in node.log


def test_a_row_whose_forward_never_returns_is_an_error_too(
    settings: Settings, store: Store, queue: Queue, tmp_path: Path
) -> None:
    impatient = settings.model_copy(update={"stall_seconds": 1.0})
    cluster = Cluster(impatient, store, queue, tmp_path)
    try:
        (node,) = cluster.start("w1")
        spec = toy_spec(tmp_path, 2, ["fine", "stuck"], batch_size=1, hang_at_prompt="stuck")
        cluster.wait_for(cluster.submit(spec), seconds=120)
        rows = check_output(spec).select(["row_index", "error_kind"]).to_pylist()
        assert [row["row_index"] for row in rows if row["error_kind"] == "poison_row"] == [1]
        assert node.log.count("has not moved for 1.0 s") == 2
    finally:
        cluster.end()
    assert_nothing_left(cluster.nodes)
