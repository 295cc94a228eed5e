"""Messages of anything: refused and kept, or done; never an error that ends the worker, and never a row lost."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.control.queue import Queue
from jobs.control.store import Store
from jobs.plan.planning import load_plan
from jobs.settings import Settings
from jobs.storage.layout import Layout
from jobs.storage.verify import Verification
from schemas.message import ShardMessage
from tests.fuzz.profile import fuzzed
from tests.fuzz.test_specs import VALUES
from tests.oracle import check_output
from tests.toy import load_session, toy_spec
from tests.workers.attempts import submitted
from workers.context import WorkerContext, WorkerOptions
from workers.tasks import handle_message

pytestmark = pytest.mark.services

Change = Callable[[dict[str, Any]], Any]
FIELDS = st.sampled_from(["schema_version", "job_id", "shard_index", "delivery", "extra"])


@st.composite
def changed_messages(draw: st.DrawFn) -> Callable[[ShardMessage], str]:
    """A valid message's text with other values, or other characters."""
    changes = draw(st.dictionaries(FIELDS, VALUES, max_size=2))
    place, text, length = draw(st.floats(0, 1)), draw(st.text(max_size=4)), draw(st.integers(0, 3))

    def change(message: ShardMessage) -> str:
        whole = json.dumps({**message.model_dump(), **changes})
        start = int(place * len(whole))
        return whole if changes else whole[:start] + text + whole[start + length :]

    return change


@pytest.fixture
def context(settings: Settings, store: Store) -> WorkerContext:
    return WorkerContext(settings, store, WorkerOptions(name="w", device="cpu"), load_session)


def test_no_message_ends_a_worker_or_loses_a_row(
    tmp_path: Path, settings: Settings, store: Store, queue: Queue, context: WorkerContext
) -> None:
    spec = toy_spec(tmp_path, 12)
    real = submitted(spec, settings, store, queue)

    @fuzzed(150)
    @given(arguments=st.lists(VALUES, max_size=3))
    @example(arguments=["x" * 2_000_000])
    @example(arguments=["[" * 100_000])
    @example(arguments=['{"job_id": "\\ud800", "shard_index": 0, "delivery": 1}'])
    def any_arguments(arguments: list[Any]) -> None:
        handle_message(arguments, context)

    @fuzzed(200)
    @given(change=changed_messages(), index=st.integers(0, len(real) - 1))
    def any_text(change: Callable[[ShardMessage], str], index: int) -> None:
        handle_message([change(real[index])], context)

    any_arguments()
    any_text()
    assert store.refused_messages()
    for message in real:
        handle_message([message.to_json()], context)
    check_output(spec)
    layout = Layout(Path(spec.output))
    assert list(Verification(layout, load_plan(layout.output)).problems()) == []
