"""Generating a shard's rows: each becomes an outcome, ok or error."""

from collections.abc import Iterable, Sequence

from schemas.errors import RowFailed
from schemas.generation import Completion, InputRow, Request, RowOutcome
from schemas.plan import Plan
from workers.attempt import Attempt
from workers.context import Session
from workers.row_book import RowBook


def generate_rows(attempt: Attempt, session: Session, rows: Sequence[InputRow], book: RowBook) -> None:
    """Puts an outcome for every row into the book; those that earlier attempts saved are not generated again."""
    book.begin()
    unfinished = [row for row in rows if row.row_index not in book.outcomes]
    requests, refused = encode_rows(session, attempt.plan, unfinished)
    book.add(refused)
    by_row = {request.row_index: request for request in requests}
    for completion in session.generate(requests, attempt.check):
        book.add([outcome_of(completion, by_row[completion.row_index], session)])


def encode_rows(session: Session, plan: Plan, rows: Iterable[InputRow]) -> tuple[list[Request], list[RowOutcome]]:
    """Requests for the rows that can be generated, and error outcomes for the others."""
    requests: list[Request] = []
    refused: list[RowOutcome] = []
    for row in rows:
        try:
            requests.append(session.encode(row, plan))
        except RowFailed as error:
            refused.append(RowOutcome(row.row_index, error=(error.kind, str(error)), finish_reason="error"))
    return requests, refused


def outcome_of(completion: Completion, request: Request, session: Session) -> RowOutcome:
    return RowOutcome(
        row_index=completion.row_index,
        text=session.decode(completion.token_ids),
        finish_reason=completion.finish_reason,
        num_prompt_tokens=len(request.prompt_token_ids),
        token_ids=completion.token_ids,
        seed=request.seed,
        statistics=completion.statistics,
    )
