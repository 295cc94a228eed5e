"""What people read of a job: progress on stderr while it runs, then its summary and some rows."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any

from jobs.control.speculation import RoundsByK, rounds_by_k
from jobs.control.status import JobStatus, RowRange
from jobs.storage.layout import Layout
from jobs.storage.results import read_results
from schemas.plan import Plan

LINE_SECONDS = 5.0
NUM_SAMPLE_ROWS = 3
TEXT_CHARS = 88
MAX_RANGES = 5


class PlainProgress:
    """A line whenever what is waited for changes, and else every few seconds; for logs and pipes."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._line, self._waiting, self._next_line = "", "", 0.0

    def __call__(self, status: JobStatus, waiting: str) -> None:
        line = f"{status.job_id}: {progress_line(status, waiting)}"
        is_time = time.monotonic() >= self._next_line or waiting != self._waiting
        if line != self._line and (is_time or status.is_terminal):
            print(line, file=self._stream, flush=True)
            self._line, self._next_line = line, time.monotonic() + LINE_SECONDS
        self._waiting = waiting


@contextmanager
def progress(stream: IO[str]) -> Iterator[Any]:
    """Something to call with (status, waiting): a bar on a terminal, lines elsewhere."""
    if not stream.isatty():
        yield PlainProgress(stream)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    # No refresh thread: this process forks children meanwhile.
    with Progress(*columns, console=Console(file=stream), auto_refresh=False, transient=True) as bar:
        task = bar.add_task("planning", total=None)

        def show(status: JobStatus, waiting: str) -> None:
            done = num_rows_seen(status)
            bar.update(task, total=status.num_rows, completed=done, description=progress_line(status, waiting))
            bar.refresh()

        yield show


def num_rows_seen(status: JobStatus) -> int:
    """Committed rows and those that running shards have finished."""
    return status.num_rows_done + status.num_rows_generated


def progress_line(status: JobStatus, waiting: str) -> str:
    """`40 of 64 rows, 85.1 tokens/s, acceptance 0.45 (loading MODEL)`"""
    parts = [f"{num_rows_seen(status)} of {status.num_rows} rows"]
    if status.num_failed:
        parts.append(f"{status.num_failed} failed")
    if status.tokens_per_second and not waiting:
        parts.append(f"{status.tokens_per_second:.1f} tokens/s")
    if status.draft_acceptance_rate is not None and not waiting:
        parts.append(f"acceptance {status.draft_acceptance_rate:.2f}")
    return ", ".join(parts) + (f" ({waiting})" if waiting else "")


def summary(status: JobStatus) -> str:
    """Aligned lines: rows, tokens, speed, acceptance, output, and what went wrong."""
    lines = {"job": f"{status.job_id} {status.state}", **_facts(status)}
    width = max(map(len, lines))
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in lines.items())


def _facts(status: JobStatus) -> dict[str, str]:
    facts = {"rows": _rows(status)}
    if status.message is not None:
        facts["why"] = status.message
    if status.missing_rows:
        facts["missing"] = _missing(status.missing_rows)
    facts["tokens"] = f"{status.num_completion_tokens} generated from {status.num_prompt_tokens} of prompts"
    if status.tokens_per_second:
        facts["speed"] = f"{status.tokens_per_second:.1f} tokens/s"
    facts["acceptance"] = _acceptance(status)
    if drafts := drafts_line(rounds_by_k(status.speculation)):
        facts["drafts"] = drafts
    facts["output"] = status.output
    return facts


def _rows(status: JobStatus) -> str:
    if status.num_samples == status.num_rows_done:
        return f"{status.num_ok} ok, {status.num_failed} failed, of {status.num_rows}"
    samples = f"{status.num_samples} samples: {status.num_ok} ok, {status.num_failed} failed"
    return f"{status.num_rows_done} of {status.num_rows}, {samples}"


def _missing(ranges: Sequence[RowRange]) -> str:
    shown = ", ".join(f"{rows.first_row}-{rows.end_row - 1}" for rows in ranges[:MAX_RANGES])
    more = len(ranges) - MAX_RANGES
    return f"rows {shown}" + (f" and {more} more ranges" if more > 0 else "")


def _acceptance(status: JobStatus) -> str:
    if status.draft_acceptance_rate is None or status.mean_acceptance_length is None:
        return "no drafted tokens"
    return (
        f"{status.draft_acceptance_rate:.2f} of drafted tokens, "
        f"{status.mean_acceptance_length:.2f} tokens a drafted round"
    )


def drafts_line(rounds: RoundsByK) -> str:
    """`ngram: k=0 in 41 % of rounds, 4 in 59 %`, of all rounds of the job; "" without any."""
    num_rounds = sum(sum(by_k.values()) for by_k in rounds.values())
    sources = (_shares(source, by_k, num_rounds) for source, by_k in sorted(rounds.items()) if any(by_k.values()))
    return "; ".join(sources).replace(" %", " % of rounds", 1)


def _shares(source: str, by_k: Mapping[str, int], num_rounds: int) -> str:
    counts = sorted((int(k), count) for k, count in by_k.items() if count)
    return f"{source}: k=" + ", ".join(f"{k} in {100 * count / num_rounds:.0f} %" for k, count in counts)


def sample_rows(layout: Layout, plan: Plan, num_rows: int = NUM_SAMPLE_ROWS) -> list[dict[str, Any]]:
    """The first committed rows, as `short_rows` wants them. Raises ShardFailed where a part is damaged."""
    batches = read_results(layout, plan)
    return list(islice((row for batch in batches for row in batch.to_pylist()), num_rows))


def short_rows(rows: Iterable[Mapping[str, Any]], prefix: str) -> list[dict[str, object]]:
    """The columns that a person looks at first, in one line each; samples are told apart where a row has several."""
    short = [_short_row(row, prefix) for row in rows]
    if not any(row["sample_index"] for row in short):
        for row in short:
            del row["sample_index"]
    return short


def _short_row(row: Mapping[str, Any], prefix: str) -> dict[str, object]:
    rate = row[prefix + "draft_acceptance_rate"]
    text = row[prefix + "error_message"] or row[prefix + "completion"] or ""
    return {
        "row_index": row[prefix + "row_index"],
        "sample_index": row[prefix + "sample_index"],
        "status": row[prefix + "status"],
        "tokens": row[prefix + "completion_tokens"],
        "acceptance": None if rate is None else f"{rate:.2f}",
        "completion": one_line(text),
    }


def one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= TEXT_CHARS else flat[: TEXT_CHARS - 1] + "…"
