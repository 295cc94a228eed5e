"""What it costs that nothing is lost: python -m tests.bench.commit

Runs a job on the demo model in this process, as a worker does, and times all that touches the output directory: the
journal, saving finished rows, staging and committing shards, and finishing the job; as a share of the wall time.
"""

import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import workers.journal
import workers.row_book
import workers.shard
from jobs.control.queue import Queue
from jobs.control.store import Store
from jobs.settings import Settings
from schemas.job import JobSpec
from tests.bench.data import arguments
from tests.services import Server
from tests.workers.attempts import submitted
from workers.context import WorkerContext, WorkerOptions
from workers.engine.session import load_session
from workers.tasks import handle_message

TIMED = {
    "journal": (workers.journal.Journal, "_write"),
    "save finished rows": (workers.row_book, "append_rows"),
    "begin an attempt": (workers.shard, "begin_attempt"),
    "fence, look for receipts": (workers.shard, "prepare_shard"),
    "stage, commit": (workers.shard, "publish_shard"),
    "finish the job": (workers.shard, "commit_job"),
}


def timed(function: Callable[..., Any], name: str, spent: Counter[str]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            spent[name] += time.perf_counter() - began  # type: ignore[assignment]

    return call


def run_job(options: Namespace, directory: Path, url: str) -> tuple[float, Counter[str]]:
    """(seconds from the first message to the end of the job, seconds by what was done)."""
    settings = Settings(redis_url=url, data_dir=directory / "data", checkpoint_seconds=options.checkpoint_seconds)
    store, queue = Store(settings, url), Queue(settings, url)
    values = {"input": str(options.prompts), "output": str(directory / "out"), "model": str(options.model)}
    shape = {"max_new_tokens": options.max_new_tokens, "shard_rows": options.shard_rows}
    messages = submitted(JobSpec.from_mapping({**values, **shape}), settings, store, queue)
    context = WorkerContext(settings, store, WorkerOptions(name="bench", device="cpu"), load_session)
    spent: Counter[str] = Counter()
    with ExitStack() as patches:
        for name, (owner, attribute) in TIMED.items():
            patches.enter_context(patch.object(owner, attribute, timed(getattr(owner, attribute), name, spent)))
        began = time.perf_counter()
        for message in messages:
            handle_message([message.to_json()], context)
        seconds = time.perf_counter() - began
    assert (directory / "out" / "_SUCCESS").exists()
    return seconds, spent


def main() -> None:
    options = arguments(__doc__ or "", max_new_tokens=64, shard_rows=16, checkpoint_seconds=5)
    server = Server()
    try:
        with tempfile.TemporaryDirectory() as directory:
            seconds, spent = run_job(options, Path(directory), server.url)
    finally:
        server.stop()
    for name, part in spent.most_common():
        print(f"{name:26} {part:8.3f} s  {part / seconds:7.3%}")
    print(f"{'all of it':26} {spent.total():8.3f} s  {spent.total() / seconds:7.3%}  of {seconds:.1f} s")


if __name__ == "__main__":
    main()
