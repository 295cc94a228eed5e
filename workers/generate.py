"""Generating a shard's rows: each of their samples becomes an outcome, ok or error."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from schemas.errors import RowFailed
from schemas.generation import InputRow, Request, RowOutcome
from workers.attempt import Attempt
from workers.batches import Batches
from workers.context import Session
from workers.journal import Death, Journal, read_history
from workers.narrowing import NUM_DEATHS_ALONE, poison_keys, suspect_groups
from workers.row_book import POISON_ROW, RowBook


def generate_rows(attempt: Attempt, session: Session, rows: Sequence[InputRow], book: RowBook) -> Mapping[str, Any]:
    """Puts an outcome for every sample of every row into the book; those that are there are not generated again.

    Rows that were in the batch when earlier attempts died go first, a few at a time, each saved when it is through.
    Returns what drafting did, as a session's `speculation`. Raises ShardRetryable where the session leaves some out,
    ShardFailed where a batch must not be made smaller.
    """
    history = read_history(attempt)
    with Journal(attempt) as journal:
        if history.died_last and len(history.deaths) <= attempt.context.settings.bisect_attempts:
            book.note_rows_added()  # a death that narrows is no fruitless attempt
        give_up_poison(book, history.deaths)
        requests, refused = encode_rows(attempt, session, rows_to_do(rows, book), journal)
        batches = Batches(attempt, (r for r in requests if r.key not in book.outcomes), book, journal)
        book.begin(batches.waiting)
        book.add(refused)
        for group in suspect_groups(history.deaths, batches.waiting):
            batches.run(group)
            book.save()
        batches.run(list(batches.waiting))
    return batches.speculation


def give_up_poison(book: RowBook, deaths: Sequence[Death]) -> None:
    for key, error in poison_keys(deaths).items():
        if key not in book.outcomes and not book.has_failed(key[0]):
            reason = f": {error}" if error else ""
            message = f"alone in the batch, it ended its worker process {NUM_DEATHS_ALONE} times{reason}"
            book.fail(key[0], POISON_ROW, message)


def rows_to_do(rows: Iterable[InputRow], book: RowBook) -> list[InputRow]:
    return [row for row in rows if not book.has_failed(row.row_index)]


def encode_rows(
    attempt: Attempt, session: Session, rows: Iterable[InputRow], journal: Journal
) -> tuple[list[Request], list[RowOutcome]]:
    """Requests for the rows that can be generated, and error outcomes for the others."""
    requests: list[Request] = []
    refused: list[RowOutcome] = []
    for row in rows:
        attempt.check()
        journal.admit([(row.row_index, 0)])
        try:
            requests += session.encode(row, attempt.plan)
        except RowFailed as error:
            refused.append(RowOutcome(row.row_index, error=(error.kind, str(error)), finish_reason="error"))
        journal.leave([(row.row_index, 0)])
    return requests, refused
