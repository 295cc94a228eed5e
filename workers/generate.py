"""Generating a shard's rows: each of their samples becomes an outcome, ok or error."""

from collections.abc import Iterable, Sequence

from schemas.errors import RowFailed, ShardRetryable
from schemas.generation import Completion, InputRow, Request, RowOutcome
from schemas.plan import Plan
from workers.attempt import Attempt
from workers.context import Session
from workers.row_book import RowBook


def generate_rows(attempt: Attempt, session: Session, rows: Sequence[InputRow], book: RowBook) -> None:
    """Puts an outcome for every sample of every row into the book; those that are there are not generated again.

    Raises ShardRetryable where the session leaves some out.
    """
    requests, refused = encode_rows(session, attempt.plan, (row for row in rows if not book.has_failed(row.row_index)))
    waiting = {request.key: request for request in requests if request.key not in book.outcomes}
    book.add(refused)
    book.begin(waiting)
    for completion in session.generate(list(waiting.values()), attempt.check):
        request = waiting.pop((completion.row_index, completion.sample_index))
        book.add([outcome_of(completion, request, session)])
    if waiting:
        raise ShardRetryable(f"shard {attempt.shard.shard_index}: no completion of {sorted(waiting)[:3]} (row, sample)")


def encode_rows(session: Session, plan: Plan, rows: Iterable[InputRow]) -> tuple[list[Request], list[RowOutcome]]:
    """Requests for the rows that can be generated, and error outcomes for the others."""
    requests: list[Request] = []
    refused: list[RowOutcome] = []
    for row in rows:
        try:
            requests += session.encode(row, plan)
        except RowFailed as error:
            refused.append(RowOutcome(row.row_index, error=(error.kind, str(error)), finish_reason="error"))
    return requests, refused


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
