"""The book of a shard's rows: what is finished, saved now and then, so that the next attempt need not do it again."""

import logging
import time
from collections.abc import Sequence
from typing import Self

from jobs.storage.checkpoint import append_rows, read_finished
from schemas.errors import CommitConflict, QueueUnavailable
from schemas.generation import RowOutcome
from workers.attempt import Attempt
from workers.totals import RowTotals

log = logging.getLogger(__name__)


class RowBook:
    """A shard's outcomes by row_index, those that earlier attempts saved to begin with.

    New ones are saved every checkpoint_seconds, and when the book's block is left by an error.
    """

    def __init__(self, attempt: Attempt) -> None:
        self.outcomes = read_finished(attempt.layout, attempt.shard)
        self._attempt = attempt
        self._unsaved: list[RowOutcome] = []
        self._totals = RowTotals()
        self._began_at = self._saved_at = time.monotonic()

    def __enter__(self) -> Self:
        self._attempt.lease.report(num_rows_done=len(self.outcomes))
        return self

    def add(self, outcomes: Sequence[RowOutcome]) -> None:
        """Raises ShardRetryable where they cannot be saved."""
        for outcome in outcomes:
            self.outcomes[outcome.row_index] = outcome
            self._totals.add(outcome)
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

    def begin(self) -> None:
        """Generation begins: what rates are counted from."""
        self._began_at = self._saved_at = time.monotonic()

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
            num_rows_done=len(self.outcomes),
            num_tokens=self._totals.num_completion_tokens,
            num_spec_steps=self._totals.num_spec_steps,
            num_draft_tokens=self._totals.num_draft_tokens,
            num_accepted_draft_tokens=self._totals.num_accepted_draft_tokens,
            seconds=time.monotonic() - self._began_at,
        )
