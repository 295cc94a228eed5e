"""The engine: requests in, completions out, B slots that are refilled as rows end."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from schemas.generation import Completion, Request, SampleKey
from workers.devices.base import Device
from workers.engine.batch import Batch
from workers.engine.buckets import Buckets, Sizes, fixed_borders, fixed_policy
from workers.engine.cache import RaggedCache
from workers.engine.draft_length import Controller
from workers.engine.drafts.base import DraftSource
from workers.engine.drafts.factory import DraftFactory
from workers.engine.limits import check_prompt_length, max_generated_tokens
from workers.engine.options import EngineOptions
from workers.engine.planner.defaults import sizes_for
from workers.engine.planner.padding import Padding
from workers.engine.prefill import longest_first, prefill
from workers.engine.rows import RowLimits, Rows
from workers.engine.runner import ForwardLog, ModelRunner
from workers.engine.speculative import speculative_round
from workers.engine.target import Target
from workers.engine.warm_up import PlannedShapes, measure_steps, warm_up


class Engine:
    """Generates for one target on one device. Keeps cache, draft source and estimates from call to call."""

    def __init__(
        self,
        target: Target,
        device: Device,
        options: EngineOptions,
        draft_model: Target | None = None,
        draft: DraftSource | None = None,
        policy: Sizes | None = None,
        draft_policy: Sizes | None = None,
    ) -> None:
        """draft, policy: in place of those that options and device name. draft_policy: of the draft model.

        Raises InvalidJob where none can be made.
        """
        self.target, self.device, self.options = target, device, options
        self.log = ForwardLog()
        self.buckets = self._plan(policy)
        self._draft = draft or DraftFactory(target, draft_model, device, options, self.buckets, draft_policy).make()
        self._controller = Controller(options.ladder, options.batch_size)
        self._is_warm = len(options.ladder) == 1
        self._runner: ModelRunner | None = None
        self._num_rounds: dict[str, Counter[int]] = {}
        self.padding = Padding()
        self._logs = [self.log]
        self._warm_up_seconds = 0.0

    @property
    def forward_seconds(self) -> float:
        """Seconds inside the target's forwards since the engine was made."""
        return self.log.seconds

    @property
    def context_length(self) -> int:
        """Tokens of prompt and completion that a row may have."""
        own, asked = self.target.context_length, self.options.kv_length
        return own if asked is None else min(own, asked)

    def report(self) -> dict[str, Any]:
        """What the controller chose in the last call of `generate`, and what it now expects; for JSON.

        Empty where nothing is drafted.
        """
        if self.options.draft == "none":
            return {}
        rounds = {source: {str(k): n for k, n in sorted(by_k.items())} for source, by_k in self._num_rounds.items()}
        return {"rounds_by_k": rounds, "controller": self._controller.report(), **self._draft.report()}

    def shapes(self) -> dict[str, Any]:
        """Shapes that were warmed up, those that came up later, and what the last call computed in vain; for JSON."""
        new_keys = [(key, count) for log in self._logs for key, count in log.new_keys().items()]
        return {
            "num_warmed": sum(len(log.warmed) for log in self._logs),
            "warm_up_seconds": round(self._warm_up_seconds, 3),
            "num_new": len(new_keys),
            "new": [{**key._asdict(), "num_forwards": count} for key, count in new_keys],
            "padding": self.padding.shares(),
        }

    def generate(
        self,
        requests: Sequence[Request],
        on_round: Callable[[], None] = lambda: None,
        on_admit: Callable[[Sequence[SampleKey]], None] = lambda keys: None,
    ) -> Iterator[Completion]:
        """Completions of all requests, each as its row ends, so not in the order of requests.

        on_round is called before every forward and on_admit with the rows that are about to take slots; both may raise
        to stop. The engine can then be used anew, but a call
        that was left halfway cannot go on once another has begun: they share the cache. Raises RowFailed before
        anything runs where a prompt does not fit the context.
        """
        batch = self._batch_for(requests, on_round)
        self._num_rounds, self.padding = batch.num_rounds, batch.padding
        waiting = longest_first(requests)
        while waiting or batch.rows:
            on_round()
            if waiting and batch.rows.num_free:
                finished = prefill(batch, waiting, on_admit)
            else:
                finished = speculative_round(batch)
            yield from (row.completion(self.options.ladder[-1]) for row in finished)

    def _plan(self, policy: Sizes | None) -> Buckets:
        options, is_static = self.options, self.device.static_shapes
        windows = options.windows
        policy = policy or sizes_for(is_static, self.context_length, options.batch_size, windows, options.max_graphs)
        if options.deterministic:
            longest = policy.kv_length(self.context_length + windows[-1])
            policy = fixed_borders(longest, options.max_graphs - 1) if is_static else fixed_policy(longest)
        return Buckets(policy, options.batch_size, options.planned_lengths, options.deterministic)

    def _batch_for(self, requests: Sequence[Request], on_round: Callable[[], None] = lambda: None) -> Batch:
        lengths = [self._max_length(request) for request in requests]
        runner = self._runner_for([len(r.prompt_token_ids) for r in requests], lengths)
        limits = RowLimits(self.target.eos_token_ids, self.context_length, self.target.vocab_size, self.target.decode)
        self._draft.begin(runner, max(lengths, default=0))
        planned = [PlannedShapes(runner, self.buckets.warm_up_keys()), *self._draft.planned_shapes()]
        self._logs = list({id(shapes.runner.log): shapes.runner.log for shapes in planned}.values())
        self._warm_up_seconds += warm_up(planned, on_round)
        if not self._is_warm and requests:
            self._controller.warm_up(measure_steps(runner, self.buckets, sorted({0, *self.options.ladder})))
            self._is_warm = True
        rows = Rows(self.options.batch_size, limits)
        return Batch(runner, rows, self._draft, self._controller, self.buckets, self.options.verification)

    def _max_length(self, request: Request) -> int:
        num_prompt_tokens = len(request.prompt_token_ids)
        check_prompt_length(num_prompt_tokens, self.context_length)
        return num_prompt_tokens + max_generated_tokens(request, self.context_length)

    def _runner_for(self, prompts: Sequence[int], lengths: Sequence[int]) -> ModelRunner:
        length = self.buckets.cache_length(max(prompts, default=0), max(lengths, default=0))
        if self._runner is None or self._runner.cache.length < length:
            self._runner = None  # frees the old cache before the new one is made
            cache = RaggedCache(self.target.kv_shapes, self.options.batch_size, length, self.target.device)
            self._runner = ModelRunner(self.target, self.device, cache, self.log)
        return self._runner
