"""What an engine is built for: the part of a job that decides its shapes, its drafts and how they are verified."""

from dataclasses import dataclass, fields
from typing import Self

from schemas.job import DraftKind, JobSpec, Verification, Vocabulary


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """As in JobSpec. batch_size: slots. draft_lengths: numbers of drafted tokens a round, ascending."""

    batch_size: int = 8
    draft: DraftKind = "ngram"
    draft_lengths: tuple[int, ...] = (0, 1, 2, 4, 8)
    verification: Verification = "coupled"
    deterministic: bool = False
    kv_length: int | None = None
    max_graphs: int = 40
    draft_temperature: float | None = None
    vocabulary: Vocabulary = "text"
    exit_layer: int | None = None
    ngram_min: int = 1
    ngram_max: int = 3
    suffix_depth: int = 24
    suffix_tokens: int = 200_000

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        return cls(**{field.name: getattr(spec, field.name) for field in fields(cls)})

    @property
    def ladder(self) -> tuple[int, ...]:
        """The draft lengths that a round may have. Without drafts the windows of a deterministic job stay the same."""
        return (0,) if self.draft == "none" else self.draft_lengths

    @property
    def planned_lengths(self) -> tuple[int, ...]:
        """The draft lengths that shapes are planned for."""
        return self.draft_lengths if self.deterministic else self.ladder

    @property
    def windows(self) -> tuple[int, ...]:
        """Positions of a round's forward, ascending, where windows are not all the longest."""
        return tuple(sorted({length + 1 for length in (0, *self.planned_lengths)}))
