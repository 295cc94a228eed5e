"""What drafting did in a job, over its shards' receipts."""

from collections import Counter
from collections.abc import Iterable
from typing import cast

from pydantic import JsonValue

from schemas.receipt import Receipt

ROUNDS_BY_K = "rounds_by_k"
RoundsByK = dict[str, dict[str, int]]


def merge_speculation(receipts: Iterable[Receipt]) -> dict[str, JsonValue] | None:
    """The newest shard's estimates, and the rounds of all; None where no receipt has any."""
    known = [receipt for receipt in receipts if receipt.speculation]
    if not known:
        return None
    newest = max(known, key=lambda receipt: receipt.committed_at)
    rounds = cast(dict[str, JsonValue], _sum_rounds(known))
    return {**(newest.speculation or {}), ROUNDS_BY_K: rounds}


def rounds_by_k(speculation: dict[str, JsonValue] | None) -> RoundsByK:
    """source -> k -> rounds in which it drafted k tokens; empty where none are counted."""
    return cast(RoundsByK, (speculation or {}).get(ROUNDS_BY_K) or {})


def _sum_rounds(receipts: Iterable[Receipt]) -> RoundsByK:
    sums: dict[str, Counter[str]] = {}
    for receipt in receipts:
        for source, rounds in rounds_by_k(receipt.speculation).items():
            sums.setdefault(source, Counter()).update(rounds)
    return {source: dict(rounds) for source, rounds in sums.items()}
