"""Draft sources, by the name that a job gives them."""

from schemas.job import DraftKind
from workers.engine.drafts.base import DraftSource
from workers.engine.drafts.ngram import NgramDraft
from workers.engine.drafts.none import NoDraft

__all__ = ["DraftSource", "make_draft"]


def make_draft(kind: DraftKind, num_slots: int, ngram_min: int, ngram_max: int) -> DraftSource:
    """The draft source of a job, for num_slots rows at once."""
    return NoDraft() if kind == "none" else NgramDraft(num_slots, ngram_min, ngram_max)
