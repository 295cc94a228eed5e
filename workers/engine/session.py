"""Loaded models between shards: what a worker process keeps, since loading takes longer than many a shard."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from schemas.errors import InvalidJob
from schemas.generation import Completion, InputRow, Request, SampleKey
from schemas.job import JobSpec
from schemas.plan import Plan
from workers.devices import get_device
from workers.devices.base import Device
from workers.engine.engine import Engine
from workers.engine.families import GENERATE_RUNS_IT
from workers.engine.loaded import loaded_part, versions_of
from workers.engine.memory import raising_out_of_memory
from workers.engine.models import load_plain, load_target
from workers.engine.options import EngineOptions
from workers.engine.plain.session import GenerateSession
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
        self._spec = spec
        self._engine = self._engine_for(spec)

    def serves(self, spec: JobSpec) -> bool:
        """Whether a job runs on what is loaded: the same engine, models, revisions, dtype and device."""
        return loaded_part(spec) == loaded_part(self._spec)

    def configure(self, spec: JobSpec) -> None:
        """Takes on a job that it serves. The engine, its cache and what its draft has learnt stay within a job."""
        if spec != self._spec:
            self._engine = self._engine_for(spec)
            self._spec = spec

    def encode(self, row: InputRow, plan: Plan) -> list[Request]:
        """A request for each sample. Raises RowFailed for a row that cannot be generated, InvalidJob for a bad job."""
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

    def versions(self) -> dict[str, str]:
        """What decides bits besides the job: libraries, device and dtype."""
        return versions_of(self.device, self.target.model.dtype)

    def _begin_anew(self) -> None:
        """Gives back the caches of the engine and its draft."""
        self._engine = self._engine_for(self._spec)

    def _engine_for(self, spec: JobSpec) -> Engine:
        return Engine(self.target, self.device, EngineOptions.of(spec), self._draft_model)


def load_session(spec: JobSpec, threads: int | None = None) -> Session | GenerateSession:
    """Loads a job's models on its device, for its engine. threads: cores, on a CPU.

    Raises InvalidJob where a model cannot be loaded or run, ShardRetryable where memory is short.
    """
    start = time.perf_counter()
    device = get_device(spec.device, threads if spec.num_threads is None else spec.num_threads)
    if spec.engine == "generate":
        model = load_plain(spec.model, spec.revision, spec.dtype, device, Trust.of(spec))
        return GenerateSession(model, device, spec, time.perf_counter() - start)
    target = load_target(spec.model, spec.revision, spec.dtype, device, Trust.of(spec))
    draft_model = load_draft_model(spec, device)
    return Session(target, device, spec, time.perf_counter() - start, draft_model)


def load_draft_model(spec: JobSpec, device: Device) -> Target | None:
    """None where the job names none. Raises as load_session does."""
    if spec.draft_model is None:
        return None
    try:
        return load_target(spec.draft_model, spec.draft_revision, spec.dtype, device, Trust.of(spec))
    except InvalidJob as error:
        reason = str(error).removesuffix(f"; {GENERATE_RUNS_IT}")
        raise InvalidJob(f"--draft-model {spec.draft_model} cannot draft; choose another one: {reason}") from error
