"""Running a shard's samples in batches that fit: suspects of a death apart, and smaller where memory is short."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs.control.speculation import add_speculation
from jobs.storage.batch_sizes import fitting_batch_size, note_too_large, smaller
from jobs.storage.durable import retryable_io
from schemas.errors import OutOfMemory, ShardFailed, ShardRetryable
from schemas.generation import Completion, Request, RowOutcome, SampleKey
from workers.attempt import Attempt
from workers.context import Session
from workers.journal import Journal
from workers.row_book import RowBook


class Batches:
    """What has to be generated, and how many rows at a time.

    waiting: samples that are not done. speculation: what drafting did so far.
    """

    def __init__(self, attempt: Attempt, requests: Iterable[Request], book: RowBook, journal: Journal) -> None:
        self.waiting = {request.key: request for request in requests}
        self.speculation: Mapping[str, Any] = {}
        self._attempt, self._book, self._journal = attempt, book, journal

    def run(self, keys: Sequence[SampleKey]) -> None:
        """Generates them, of those that wait. Raises ShardRetryable where the session leaves some out."""
        while left := [key for key in keys if key in self.waiting]:
            size = fitting_batch_size(self._attempt.layout, self._attempt.plan.spec.batch_size)
            try:
                self._generate(left, size)
            except OutOfMemory as error:
                self._step_down(left, size, error)
            else:
                self._check_none_left(left)

    def _generate(self, keys: Sequence[SampleKey], batch_size: int) -> None:
        session = self._attempt.context.session_for(
            self._attempt.plan.spec.model_copy(update={"batch_size": batch_size})
        )
        requests = [self.waiting[key] for key in keys]
        for completion in session.generate(requests, self._attempt.check, self._journal.admit):
            key = (completion.row_index, completion.sample_index)
            outcome = outcome_of(completion, self.waiting[key], session)
            self._journal.leave([key])
            del self.waiting[key]
            self._book.add([outcome])
        self.speculation = add_speculation(self.speculation, session.speculation())

    def _step_down(self, keys: Sequence[SampleKey], batch_size: int, error: OutOfMemory) -> None:
        """Does what did not fit in smaller batches, and remembers the size where no single row was to blame."""
        if self._attempt.plan.spec.deterministic:
            raise ShardFailed(f"{error}; --deterministic keeps its batch size: give a smaller --batch-size") from error
        sizes = self._run_smaller(self._too_much(keys, batch_size), batch_size)
        for size in sizes or ():
            with retryable_io(f"shard {self._attempt.shard.shard_index}: cannot remember a batch size"):
                note_too_large(self._attempt.layout, size)

    def _run_smaller(self, keys: Sequence[SampleKey], batch_size: int) -> set[int] | None:
        """keys: did not fit together. Returns the sizes that were too large; None where a row alone did not fit."""
        size, too_large = smaller(batch_size), {batch_size}
        if not size:
            self._give_up(keys[0][0])
            return None
        fits = True
        for first in range(0, len(keys), size):
            group = [key for key in keys[first : first + size] if key in self.waiting]
            try:
                self._generate(group, size)
            except OutOfMemory:
                deeper = self._run_smaller(self._too_much(group, size), size)
                fits, too_large = fits and deeper is not None, too_large | (deeper or set())
        return too_large if fits else None

    def _too_much(self, keys: Sequence[SampleKey], batch_size: int) -> list[SampleKey]:
        """What was in the batch, taken out of it; of keys the longest ones, where none had entered it yet.

        Memory for a whole batch of the longest rows may be asked for before.
        """
        in_batch = sorted(self._journal.in_batch)
        self._journal.leave(in_batch)
        return in_batch or sorted((key for key in keys if key in self.waiting), key=self._shortness)[:batch_size]

    def _shortness(self, key: SampleKey) -> int:
        request = self.waiting[key]
        return -len(request.prompt_token_ids) - request.max_new_tokens

    def _give_up(self, row_index: int) -> None:
        """The row becomes an error, and none of its samples is generated."""
        for key in [key for key in self.waiting if key[0] == row_index]:
            del self.waiting[key]
        self._book.fail(row_index, "out_of_memory", "there is not enough memory for this row alone")

    def _check_none_left(self, keys: Iterable[SampleKey]) -> None:
        left = [key for key in keys if key in self.waiting]
        if left:
            shard_index = self._attempt.shard.shard_index
            raise ShardRetryable(f"shard {shard_index}: no completion of {sorted(left)[:3]} (row, sample)")


def outcome_of(completion: Completion, request: Request, session: Session) -> RowOutcome:
    return RowOutcome(
        row_index=completion.row_index,
        sample_index=completion.sample_index,
        text=session.decode(completion.token_ids) if completion.text is None else completion.text,
        finish_reason=completion.finish_reason,
        num_prompt_tokens=len(request.prompt_token_ids),
        token_ids=completion.token_ids,
        seed=request.seed,
        statistics=completion.statistics,
    )
