"""A draft model over ragged rows: told how rows stand, it gives the logits after their last tokens, step by step.

Its cache follows the rows by itself. After a round in which all drafted tokens were accepted it lags by the last of
them, after rounds that drafted nothing by more, and a new row's prompt is not in it at all.
"""

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from workers.devices.base import Device
from workers.engine.buckets import FINE_BUCKETS, Buckets, Sizes
from workers.engine.cache import RaggedCache
from workers.engine.constraints import Logits
from workers.engine.planner.job import DRAFT_WINDOWS
from workers.engine.prefill import lay_out
from workers.engine.runner import ForwardLog, ModelRunner
from workers.engine.target import Target
from workers.engine.warm_up import PlannedShapes

# With which a cache catches up: what an ordinary round needs, and what many skipped ones do.
_WINDOWS = DRAFT_WINDOWS[1:]


class DraftDecoder:
    """A draft model's rows in B slots. log: its forwards."""

    def __init__(self, model: Target, device: Device, num_slots: int, policy: Sizes = FINE_BUCKETS) -> None:
        self.model, self.log = model, ForwardLog()
        self._device, self._num_slots = device, num_slots
        self._buckets = Buckets(policy, num_slots, tuple(window - 1 for window in DRAFT_WINDOWS))
        self._runner: ModelRunner | None = None
        self._max_length = 0
        self._tokens: list[list[int]] = []
        self._num_cached: list[int] = []

    def begin(self, max_length: int) -> None:
        """Makes room for rows of max_length tokens, or as many as the model's context holds; no slot has a row."""
        self._max_length = min(max_length, self.model.context_length)
        length = self._buckets.cache_length(self._max_length, self._max_length)
        if self._runner is None or self._runner.cache.length < length:
            self._runner = None  # frees the old cache before the new one is made
            cache = RaggedCache(self.model.kv_shapes, self._num_slots, length, self.model.device)
            self._runner = ModelRunner(self.model, self._device, cache, self.log)
        self._tokens, self._num_cached = [[] for _ in range(self._num_slots)], [0] * self._num_slots

    def planned_shapes(self) -> list[PlannedShapes]:
        assert self._runner is not None
        return [PlannedShapes(self._runner, self._buckets.warm_up_keys(), takes_last=True)]

    def start(self, slot: int, tokens: Sequence[int]) -> None:
        self._tokens[slot], self._num_cached[slot] = list(tokens), 0

    def extend(self, slot: int, tokens: Sequence[int], num_known: int = 0) -> None:
        """The slot's row has gone on; the first num_known of tokens are in the cache, as drafted and stepped over."""
        self.rewrite(slot, len(self._tokens[slot]), tokens, num_known)

    def rewrite(self, slot: int, num_unchanged: int, tokens: Sequence[int], num_known: int = 0) -> None:
        """The slot's row is its first num_unchanged tokens, then these, of which the cache has the first num_known."""
        self._num_cached[slot] = min(self._num_cached[slot], num_unchanged)
        if self._num_cached[slot] == num_unchanged:
            self._num_cached[slot] += num_known
        self._tokens[slot][num_unchanged:] = tokens

    def finish(self, slot: int) -> None:
        self._tokens[slot], self._num_cached[slot] = [], 0

    def tokens(self, slot: int) -> list[int]:
        return self._tokens[slot]

    def can_draft(self, slot: int, k: int) -> bool:
        """Whether the slot has a row, and the model's context room for k tokens more."""
        return 0 < len(self._tokens[slot]) <= self._max_length - k

    def last_logits(self, k: int) -> tuple[Logits, Tensor]:
        """Logits (B, 1, V) after each row's last token, and its position (B, 1). Rows that cannot draft k: anything."""
        able = [slot for slot in range(self._num_slots) if self.can_draft(slot, k)]
        self._prefill([slot for slot in able if self._num_cached[slot] == 0])
        while self._lag(able) > _WINDOWS[-1]:
            self._catch_up(able, _WINDOWS[-1], is_last=False)
        window = next(size for size in _WINDOWS if self._lag(able) <= size)
        return self._catch_up(able, window, is_last=True)

    def step(self, tokens: Tensor, positions: Tensor) -> Logits:
        """Logits (B, 1, V) after tokens (B, 1) at positions (B, 1), which follow what each row's cache has."""
        assert self._runner is not None
        longest = max(map(len, self._tokens)) + positions.shape[1] + max(_WINDOWS)
        return self._runner.decode(self._known(tokens), positions, self._kv_length(longest))

    def _lag(self, slots: Sequence[int]) -> int:
        return max((len(self._tokens[slot]) - self._num_cached[slot] for slot in slots), default=0)

    def _prefill(self, slots: Sequence[int]) -> None:
        """The prompts of new rows, all but their last token at least: that one's logits come with the others'."""
        assert self._runner is not None
        waiting = deque(sorted(slots, key=lambda slot: -len(self._tokens[slot])))
        while waiting:
            length = self._buckets.prefill_length(len(self._tokens[waiting[0]]))
            alike = [s for s in waiting if self._buckets.prefill_length(len(self._tokens[s])) == length]
            num_rows = self._buckets.prefill_rows(len(alike), length)
            taken = [waiting.popleft() for _ in range(min(num_rows, len(alike)))]
            prompts = [(slot, self._tokens[slot]) for slot in taken]
            layout = lay_out(prompts, num_rows, length, self._runner.cache.scratch_slot)
            moved = torch.from_numpy(layout).to(self.model.device)
            self._runner.prefill(self._known(moved[:, 2:]), slots=moved[:, 0], last_positions=moved[:, 1])
            for slot in taken:
                self._num_cached[slot] = len(self._tokens[slot]) - 1

    def _catch_up(self, able: Sequence[int], window: int, is_last: bool) -> tuple[Logits, Tensor]:
        """One forward over the tokens that caches lack: from the end of each row, or from where its cache ends."""
        assert self._runner is not None
        layout = [[0] * (2 + window) for _ in range(self._num_slots)]
        for slot in able:
            tokens, length = self._tokens[slot], len(self._tokens[slot])
            begin = max(0, length - window) if is_last else max(0, min(self._num_cached[slot], length - window))
            known = tokens[begin : begin + window]
            layout[slot] = [begin, length - 1 - begin, *known, *[0] * (window - len(known))]
            self._num_cached[slot] = max(self._num_cached[slot], begin + len(known))
        moved = torch.tensor(layout).to(self.model.device)
        positions = moved[:, :1] + torch.arange(window, device=moved.device)
        longest = max((len(self._tokens[slot]) for slot in able), default=0) + window
        last = moved[:, 1].clamp(max=window - 1)
        logits = self._runner.decode(self._known(moved[:, 2:]), positions, self._kv_length(longest), last)
        return logits, positions.gather(1, last[:, None])

    def _known(self, tokens: Tensor) -> Tensor:
        """Token ids that the model has an embedding for: a target's may be padded further, and draw such an id."""
        return tokens.clamp(max=self.model.vocab_size - 1)

    def _kv_length(self, num_positions: int) -> int:
        assert self._runner is not None
        return min(self._buckets.kv_length(num_positions), self._runner.cache.length)
