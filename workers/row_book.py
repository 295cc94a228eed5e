"""The book of a shard's rows: what is finished, saved now and then, so that the next attempt need not do it again."""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

from jobs.storage.checkpoint import append_rows, read_finished
from schemas.errors import CommitConflict, QueueUnavailable
from schemas.generation import RowOutcome, SampleKey
from workers.attempt import Attempt
from workers.totals import RowTotals

log = logging.getLogger(__name__)


class RowBook:
    """A shard's outcomes by row and sample, those that earlier attempts saved to begin with.

    New ones are saved every checkpoint_seconds, and when the book's block is left by an error.
    """

    def __init__(self, attempt: Attempt) -> None:
        self.outcomes = read_finished(attempt.layout, attempt.shard)
        self._attempt = attempt
        self._unsaved: list[RowOutcome] = []
        self._num_waiting: Counter[int] = Counter()  # samples to come, by row_index
        self._num_rows_done = self._count_rows_done()
        self._totals = RowTotals()
        self._began_at = self._saved_at = time.monotonic()

    def __enter__(self) -> Self:
        self._attempt.lease.report(num_rows_done=self._num_rows_done)
        return self

    def has_failed(self, row_index: int) -> bool:
        """Whether an earlier attempt found that the row cannot be generated."""
        first = self.outcomes.get((row_index, 0))
        return first is not None and first.error is not None

    def begin(self, waiting: Iterable[SampleKey]) -> None:
        """Generation begins, of these samples: what rates are counted from."""
        self._num_waiting = Counter(row_index for row_index, _ in waiting)
        self._num_rows_done = self._count_rows_done()
        self._began_at = self._saved_at = time.monotonic()

    def add(self, outcomes: Sequence[RowOutcome]) -> None:
        """Raises ShardRetryable where they cannot be saved."""
        for outcome in outcomes:
            self.outcomes[outcome.key] = outcome
            self._totals.add(outcome)
            self._num_waiting[outcome.row_index] -= 1
            self._num_rows_done += self._num_waiting[outcome.row_index] <= 0
        self._unsaved += outcomes
        self._report()
        if time.monotonic() - self._saved_at >= self._attempt.context.settings.checkpoint_seconds:
            self._save()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # A conflict means that the shard is committed: its rows are not needed any more.
        if error is None or isinstance(error, CommitConflict):
            return
        try:
            self._save()
        except Exception:
            # The error that ended the block is the one to tell; these rows are generated again.
            log.exception("shard %d: finished rows could not be saved", self._attempt.shard.shard_index)

    def _count_rows_done(self) -> int:
        return len({row_index for row_index, _ in self.outcomes} - self._num_waiting.keys())

    def _save(self) -> None:
        attempt = self._attempt
        append_rows(attempt.layout, attempt.shard, attempt.number, self._unsaved)
        self._saved_at = time.monotonic()
        if self._unsaved:
            self._unsaved = []
            self._note_rows_added()

    def _note_rows_added(self) -> None:
        try:
            self._attempt.context.store.note_rows_added(self._attempt.plan.job_id, self._attempt.shard.shard_index)
        except QueueUnavailable as error:
            log.warning("the count of fruitless attempts stays as it is: %s", error)

    def _report(self) -> None:
        self._attempt.lease.report(
            num_rows_done=self._num_rows_done,
            num_tokens=self._totals.num_completion_tokens,
            num_spec_steps=self._totals.num_spec_steps,
            num_draft_tokens=self._totals.num_draft_tokens,
            num_accepted_draft_tokens=self._totals.num_accepted_draft_tokens,
            seconds=time.monotonic() - self._began_at,
        )
