"""Loaded models between shards: what a worker process keeps, since loading takes longer than many a shard."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from schemas.generation import Completion, InputRow, Request, SampleKey
from schemas.job import JobSpec
from schemas.plan import Plan
from workers.devices import get_device
from workers.devices.base import Device
from workers.engine.drafts.vocabulary import same_tokenizer
from workers.engine.engine import Engine
from workers.engine.job_shapes import shapes_of
from workers.engine.loaded import loaded_part, versions_of
from workers.engine.memory import raising_out_of_memory
from workers.engine.model_size import check_least_memory, model_sizes
from workers.engine.models import load_plain, load_target, naming_draft
from workers.engine.options import EngineOptions
from workers.engine.plain.session import GenerateSession
from workers.engine.planner.job import JobShapes
from workers.engine.prompts import encode_row
from workers.engine.target import Target
from workers.engine.trust import Trust


class Session:
    """A target, and a draft model where the job names one, on a device; and the engine that the job's options make.

    load_seconds: how long loading took.
    """

    def __init__(
        self,
        target: Target,
        device: Device,
        spec: JobSpec,
        load_seconds: float = 0.0,
        draft_model: Target | None = None,
    ) -> None:
        self.target, self.device, self.load_seconds = target, device, load_seconds
        self._draft_model = draft_model
        self._spec, self._planned_job = spec, ""
        self._shapes: JobShapes | None = None
        self._engine = self._engine_for(spec)

    def serves(self, spec: JobSpec) -> bool:
        """Whether a job runs on what is loaded: the same engine, models, revisions, dtype and device."""
        return loaded_part(spec) == loaded_part(self._spec)

    def configure(self, spec: JobSpec) -> None:
        """Takes on a job that it serves. The engine, its cache and what its draft has learnt stay within a job."""
        if spec != self._spec:
            self._engine = self._engine_for(spec)
            self._spec, self._planned_job, self._shapes = spec, "", None

    def encode(self, row: InputRow, plan: Plan) -> list[Request]:
        """A request for each sample. Raises RowFailed for a row that cannot be generated, InvalidJob for a bad job.

        Where each shape is a compilation, the shapes of all the job's rows are planned before its first.
        """
        if plan.job_id != self._planned_job and self.device.static_shapes and not plan.spec.deterministic:
            self._plan_shapes(plan)
        return encode_row(row, plan.spec, self.target.tokenizer, self._engine.context_length, self.target.vocab_size)

    def generate(
        self,
        requests: Sequence[Request],
        on_round: Callable[[], None] = lambda: None,
        on_admit: Callable[[Sequence[SampleKey]], None] = lambda keys: None,
    ) -> Iterator[Completion]:
        """Completions as rows end. on_round is called between rounds, on_admit with rows that are about to begin; both
        may raise to stop. Raises OutOfMemory."""
        return raising_out_of_memory(self._engine.generate(requests, on_round, on_admit), self._begin_anew)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a completion, without EOS and other special tokens."""
        return self.target.decode(token_ids)

    def speculation(self) -> Mapping[str, Any]:
        """What the engine chose in the last `generate`, and expects of drafts now; for JSON."""
        return self._engine.report()

    def shapes(self) -> Mapping[str, Any]:
        """Shapes of forwards that were warmed up, those that came up later, and padding; for JSON."""
        return self._engine.shapes()

    def versions(self) -> dict[str, str]:
        """What decides bits besides the job: libraries, device and dtype."""
        return versions_of(self.device, self.target.model.dtype)

    def _begin_anew(self) -> None:
        """Gives back the caches of the engine and its draft."""
        self._engine = self._engine_for(self._spec, self._shapes)

    def _engine_for(self, spec: JobSpec, shapes: JobShapes | None = None) -> Engine:
        sizes, draft_sizes = (shapes.target.borders, shapes.draft and shapes.draft.borders) if shapes else (None, None)
        return Engine(
            self.target,
            self.device,
            EngineOptions.of(spec),
            self._draft_model,
            policy=sizes,
            draft_policy=draft_sizes,
        )

    def _plan_shapes(self, plan: Plan) -> None:
        # The session's own spec: after memory ran out its batch is smaller than the job's.
        plan = plan.model_copy(update={"spec": self._spec})
        sizes = model_sizes(plan.spec, self.target.model.dtype)
        draft = self._draft_model
        is_translated = draft is not None and not same_tokenizer(self.target.tokenizer, draft.tokenizer)
        self._shapes = shapes_of(plan, self.target.tokenizer, sizes, is_translated)
        self._shapes.memory.check(self.device.memory_bytes()[1])
        self._engine = self._engine_for(self._spec, self._shapes)
        self._planned_job = plan.job_id


def load_session(spec: JobSpec, threads: int | None = None) -> Session | GenerateSession:
    """Loads a job's models on its device, for its engine. threads: cores, on a CPU.

    Raises InvalidJob where a model cannot be loaded or run, ShardRetryable where memory is short.
    """
    start = time.perf_counter()
    device = get_device(spec.device, threads if spec.num_threads is None else spec.num_threads, spec.compile)
    if spec.engine == "generate":
        model = load_plain(spec.model, spec.revision, spec.dtype, device, Trust.of(spec))
        return GenerateSession(model, device, spec, time.perf_counter() - start)
    check_least_memory(spec, device)
    target = load_target(spec.model, spec.revision, spec.dtype, device, Trust.of(spec))
    draft_model = load_draft_model(spec, device)
    return Session(target, device, spec, time.perf_counter() - start, draft_model)


def load_draft_model(spec: JobSpec, device: Device) -> Target | None:
    """None where the job names none. Raises as load_session does."""
    if spec.draft_model is None:
        return None
    with naming_draft(spec.draft_model):
        return load_target(spec.draft_model, spec.draft_revision, spec.dtype, device, Trust.of(spec))
