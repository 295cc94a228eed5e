"""What drafting did in a job, over its shards' receipts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import cast

from pydantic import JsonValue

from schemas.receipt import Receipt

ROUNDS_BY_K = "rounds_by_k"
RoundsByK = dict[str, dict[str, int]]


def add_speculation(earlier: Mapping[str, JsonValue], later: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The later one's estimates, and the rounds of both."""
    if not earlier or not later:
        return dict(later or earlier)
    return {**later, ROUNDS_BY_K: cast(dict[str, JsonValue], _sum_rounds([earlier, later]))}


def merge_speculation(receipts: Iterable[Receipt]) -> dict[str, JsonValue] | None:
    """The newest shard's estimates, and the rounds of all; None where no receipt has any."""
    known = [receipt for receipt in receipts if receipt.speculation]
    if not known:
        return None
    newest = max(known, key=lambda receipt: receipt.committed_at)
    rounds = cast(dict[str, JsonValue], _sum_rounds(receipt.speculation or {} for receipt in known))
    return {**(newest.speculation or {}), ROUNDS_BY_K: rounds}


def rounds_by_k(speculation: Mapping[str, JsonValue] | None) -> RoundsByK:
    """source -> k -> rounds in which it drafted k tokens; empty where none are counted."""
    return cast(RoundsByK, (speculation or {}).get(ROUNDS_BY_K) or {})


def _sum_rounds(speculations: Iterable[Mapping[str, JsonValue]]) -> RoundsByK:
    sums: dict[str, Counter[str]] = {}
    for speculation in speculations:
        for source, rounds in rounds_by_k(speculation).items():
            sums.setdefault(source, Counter()).update(rounds)
    return {source: dict(rounds) for source, rounds in sums.items()}
