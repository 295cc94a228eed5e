"""The journal of an attempt: which samples are in the batch, so that the next one knows what a dead one died of.

One line of JSON for each event, appended before the samples enter the batch and when they are done; its newline comes
first, so that a torn line spoils no other. A row is noted while it is encoded too, as if it were in the batch.

Nothing is synced: what a process has written outlives it, and only a machine that fails could lose it, which is no
row's fault.
"""

import errno
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from jobs.storage.durable import make_dirs, retryable_io
from jobs.texts import one_line
from schemas.errors import ShardRetryable, SpecbatchError
from schemas.generation import SampleKey
from workers.attempt import Attempt
from workers.stopping import WorkerStopping

SUFFIX = ".inflight"
MAX_ERROR_CHARS = 500
NO_ROWS_FAULT = (SpecbatchError, WorkerStopping, KeyboardInterrupt, SystemExit, GeneratorExit)


@dataclass(frozen=True, slots=True)
class Death:
    """An attempt ended without a word, or by an error that nobody foresaw. keys: what was in the batch then."""

    keys: frozenset[SampleKey]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class History:
    """A shard's deaths so far, in order. died_last: whether its latest attempt that had a journal is one of them."""

    deaths: tuple[Death, ...]
    died_last: bool


class Journal:
    """An attempt's own. As a context it is closed with an end mark, unless an error comes that nobody foresaw."""

    def __init__(self, attempt: Attempt) -> None:
        self.in_batch: set[SampleKey] = set()
        self._path = _directory(attempt) / f"{attempt.number}{SUFFIX}"
        self._what = f"shard {attempt.shard.shard_index}: cannot write its journal"

    def __enter__(self) -> Self:
        with retryable_io(self._what):
            make_dirs(self._path.parent)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        return self

    def admit(self, keys: Sequence[SampleKey]) -> None:
        """Call it before the samples enter the batch. Raises ShardRetryable."""
        self.in_batch.update(keys)
        self._write({"admitted": list(keys)})

    def leave(self, keys: Iterable[SampleKey]) -> None:
        """They are no longer in the batch: done, or taken out of it. Raises ShardRetryable."""
        left = list(keys)
        self.in_batch.difference_update(left)
        self._write({"left": left})

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None or isinstance(error, NO_ROWS_FAULT):
                self._write({"ended": True})
            else:
                self._write({"error": f"{type(error).__name__}: {one_line(error)}"[:MAX_ERROR_CHARS]})
        except ShardRetryable:
            # No row is to be blamed for a full disk, where removing still works.
            with retryable_io(self._what):
                self._path.unlink(missing_ok=True)
        finally:
            os.close(self._descriptor)

    def _write(self, event: dict[str, Any]) -> None:
        line = b"\n" + json.dumps(event).encode()
        with retryable_io(self._what):
            if os.write(self._descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_history(attempt: Attempt) -> History:
    """Of the shard's earlier attempts at the same generation those that died with rows in the batch.

    One that is frozen and has lost its lease looks dead as well; that costs a closer look and no row. Raises
    ShardRetryable.
    """
    paths = [path for path in _directory(attempt).glob(f"*{SUFFIX}") if int(path.stem) < attempt.number]
    with retryable_io(f"shard {attempt.shard.shard_index}: cannot read its journals"):
        endings = [_death(list(_events(path))) for path in sorted(paths, key=lambda path: int(path.stem))]
    deaths = tuple(death for death in endings if death is not None)
    return History(deaths, died_last=bool(endings) and endings[-1] is not None)


def _death(events: Sequence[dict[str, Any]]) -> Death | None:
    """None where it ended in order, or with nothing in the batch."""
    keys: set[SampleKey] = set()
    for event in events:
        keys.update((row, sample) for row, sample in event.get("admitted", ()))
        keys.difference_update((row, sample) for row, sample in event.get("left", ()))
    last = events[-1] if events else {}
    return None if "ended" in last or not keys else Death(frozenset(keys), last.get("error"))


def _events(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().split(b"\n"):
        try:
            yield json.loads(line)
        except ValueError:  # torn by a kill or a full disk; or nothing, before the first
            continue


def _directory(attempt: Attempt) -> Path:
    return attempt.layout.wip_dir(attempt.shard.shard_index, attempt.generation)
