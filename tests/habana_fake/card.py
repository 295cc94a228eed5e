"""The card that the stand-in for habana_frameworks talks to: who holds it, and what its compiler has done."""

from dataclasses import dataclass, field

MEMORY_BYTES = 96 << 30


@dataclass
class Card:
    """taken_by: why it cannot be acquired. num_compilations, num_fallbacks: what metrics tell of."""

    is_lazy: bool = True
    is_there: bool = True
    taken_by: str | None = None
    is_acquired: bool = False
    num_compilations: int = 0
    num_mark_steps: int = 0
    num_replays: int = 0
    compiled: list[str] = field(default_factory=list)

    def acquire(self) -> None:
        if self.taken_by is not None or not self.is_there:
            raise RuntimeError(f"synStatus=8 [Device not found] Device acquire failed. {self.taken_by or ''}".strip())
        self.is_acquired = True

    def count_compilation(self, what: str) -> None:
        self.num_compilations += 1
        self.compiled.append(what)


card = Card()


def reset(is_lazy: bool) -> Card:
    """A free card and nothing compiled. The object stays: modules refer to it."""
    card.__init__(is_lazy=is_lazy)  # type: ignore[misc]
    return card
