"""The engine: requests in, completions out, B slots that are refilled as rows end."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from schemas.generation import Completion, Request
from schemas.job import DraftKind, JobSpec
from workers.devices.base import Device
from workers.engine.buckets import BucketPolicy, Buckets, bucket_policy
from workers.engine.cache import RaggedCache
from workers.engine.drafts import DraftSource, make_draft
from workers.engine.limits import check_prompt_length, max_generated_tokens
from workers.engine.prefill import longest_first, prefill
from workers.engine.rows import Rows
from workers.engine.runner import ForwardLog, ModelRunner
from workers.engine.speculative import speculative_round
from workers.engine.target import Target


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """batch_size: slots. num_draft_tokens: k, drafted tokens a round at most, where anything is drafted."""

    batch_size: int = 8
    draft: DraftKind = "ngram"
    num_draft_tokens: int = 4
    ngram_min: int = 1
    ngram_max: int = 3

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """The part of a job that the engine is built for."""
        return cls(spec.batch_size, spec.draft, spec.num_draft_tokens, spec.ngram_min, spec.ngram_max)

    @property
    def window(self) -> int:
        return 1 if self.draft == "none" else self.num_draft_tokens + 1


class Engine:
    """Generates for one target on one device. Keeps its cache from call to call while that is long enough."""

    def __init__(
        self,
        target: Target,
        device: Device,
        options: EngineOptions,
        draft: DraftSource | None = None,
        policy: BucketPolicy | None = None,
    ) -> None:
        """draft, policy: in place of those that options and device name."""
        self.target, self.device, self.options = target, device, options
        self.buckets = Buckets(policy or bucket_policy(device.static_shapes), options.batch_size, options.window)
        self.log = ForwardLog()
        self._draft = draft or make_draft(options.draft, options.batch_size, options.ngram_min, options.ngram_max)
        self._runner: ModelRunner | None = None

    @property
    def forward_seconds(self) -> float:
        """Seconds inside the target's forwards since the engine was made."""
        return self.log.seconds

    def generate(
        self, requests: Sequence[Request], on_round: Callable[[], None] = lambda: None
    ) -> Iterator[Completion]:
        """Completions of all requests, each as its row ends, so not in the order of requests.

        on_round is called before every forward and may raise to stop. The engine can then be used anew, but a call
        that was left halfway cannot go on once another has begun: they share the cache. Raises RowFailed before
        anything runs where a prompt does not fit the context.
        """
        rows = Rows(
            self.options.batch_size, self.options.window - 1, self.target.eos_token_ids, self.target.context_length
        )
        runner = self._runner_for(requests)
        waiting = longest_first(requests)
        while waiting or rows:
            on_round()
            if waiting and rows.num_free:
                finished = prefill(runner, self._draft, rows, self.buckets, waiting)
            else:
                finished = speculative_round(runner, self._draft, rows, self.buckets)
            yield from (row.completion() for row in finished)

    def _runner_for(self, requests: Sequence[Request]) -> ModelRunner:
        length = self._cache_length(requests)
        if self._runner is None or self._runner.cache.length < length:
            self._runner = None  # frees the old cache before the new one is made
            cache = RaggedCache(self.target.kv_shapes, self.options.batch_size, length, self.target.device)
            self._runner = ModelRunner(self.target, self.device, cache, self.log)
        return self._runner

    def _cache_length(self, requests: Sequence[Request]) -> int:
        context = self.target.context_length
        for request in requests:
            check_prompt_length(len(request.prompt_token_ids), context)
        prompts = [len(request.prompt_token_ids) for request in requests]
        lengths = [len(r.prompt_token_ids) + max_generated_tokens(r, context) for r in requests]
        return self.buckets.cache_length(max(prompts, default=0), max(lengths, default=0))
