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

POISON_ROW = "poison_row"  # found by attempts that died, which is no getting on

log = logging.getLogger(__name__)


class RowBook:
    """A shard's outcomes by row and sample, those that earlier attempts saved to begin with.

    New ones are saved as often as the settings say, and when the book's block is left by an error.
    checkpoint_seconds: spent in saving.
    """

    def __init__(self, attempt: Attempt) -> None:
        self.outcomes = read_finished(attempt.layout, attempt.shard, attempt.generation)
        self._attempt = attempt
        self._unsaved: list[RowOutcome] = []
        self._num_waiting: Counter[int] = Counter()  # samples to come, by row_index
        self._num_rows_done = self._count_rows_done()
        self._num_failed = sum(outcome.error is not None for outcome in self.outcomes.values())
        self._totals = RowTotals()
        self.checkpoint_seconds = 0.0
        self._began_at = self._saved_at = time.monotonic()

    def __enter__(self) -> Self:
        self._attempt.lease.report(num_rows_done=self._num_rows_done, num_failed=self._num_failed)
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
            self._num_failed += outcome.error is not None
            self._num_waiting[outcome.row_index] -= 1
            self._num_rows_done += self._num_waiting[outcome.row_index] <= 0
        self._unsaved += outcomes
        self._report()
        if time.monotonic() - self._saved_at >= self._attempt.context.settings.checkpoint_seconds:
            self.save()

    def fail(self, row_index: int, kind: str, message: str) -> None:
        """The row is an error, whatever of its samples is done; saved at once. Raises ShardRetryable."""
        for key in [key for key in self.outcomes if key[0] == row_index]:
            del self.outcomes[key]
        self._unsaved = [outcome for outcome in self._unsaved if outcome.row_index != row_index]
        self._num_waiting[row_index] = 1
        self.add([RowOutcome(row_index, error=(kind, message), finish_reason="error")])
        self.save()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # A conflict means that the shard is committed: its rows are not needed any more.
        if error is None or isinstance(error, CommitConflict):
            return
        try:
            self.save()
        except Exception:
            # The error that ended the block is the one to tell; these rows are generated again.
            log.exception("shard %d: finished rows could not be saved", self._attempt.shard.shard_index)

    def _count_rows_done(self) -> int:
        return len({row_index for row_index, _ in self.outcomes} - self._num_waiting.keys())

    def save(self) -> None:
        """What is finished, now. Raises ShardRetryable."""
        attempt, began = self._attempt, time.monotonic()
        append_rows(attempt.layout, attempt.shard, attempt.number, self._unsaved, attempt.generation)
        self._saved_at = time.monotonic()
        self.checkpoint_seconds += self._saved_at - began
        saved, self._unsaved = self._unsaved, []
        if any(outcome.error is None or outcome.error[0] != POISON_ROW for outcome in saved):
            self.note_rows_added()

    def note_rows_added(self) -> None:
        """The shard gets on: its count of fruitless attempts begins anew."""
        try:
            self._attempt.context.store.note_rows_added(self._attempt.plan.job_id, self._attempt.shard.shard_index)
        except QueueUnavailable as error:
            log.warning("the count of fruitless attempts stays as it is: %s", error)

    def _report(self) -> None:
        self._attempt.lease.report(
            num_rows_done=self._num_rows_done,
            num_failed=self._num_failed,
            num_tokens=self._totals.num_completion_tokens,
            num_spec_steps=self._totals.num_spec_steps,
            num_draft_tokens=self._totals.num_draft_tokens,
            num_accepted_draft_tokens=self._totals.num_accepted_draft_tokens,
            seconds=time.monotonic() - self._began_at,
        )
