"""One loaded model between shards: what a worker process keeps, since loading takes longer than many a shard."""

import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version

from schemas.generation import Completion, InputRow, Request
from schemas.job import JobSpec
from schemas.plan import Plan
from workers.devices import get_device
from workers.devices.base import Device
from workers.engine.engine import Engine, EngineOptions
from workers.engine.models import load_target
from workers.engine.prompts import encode_row
from workers.engine.target import Target


class Session:
    """A target and tokenizer on a device, and the engine that the current job's options make.

    load_seconds: how long loading took.
    """

    def __init__(self, target: Target, device: Device, spec: JobSpec, load_seconds: float = 0.0) -> None:
        self.target, self.device, self.load_seconds = target, device, load_seconds
        self._loaded = _loaded_part(spec)
        self._engine = Engine(target, device, EngineOptions.of(spec))

    def serves(self, spec: JobSpec) -> bool:
        """Whether a job runs on what is loaded: the same model, revision, dtype and device."""
        return _loaded_part(spec) == self._loaded

    def configure(self, spec: JobSpec) -> None:
        """Takes on a job that it serves. The engine and its cache stay where its options are the same."""
        if EngineOptions.of(spec) != self._engine.options:
            self._engine = Engine(self.target, self.device, EngineOptions.of(spec))

    def encode(self, row: InputRow, plan: Plan) -> Request:
        """Raises RowFailed for a row that cannot be generated, InvalidJob where none could."""
        return encode_row(row, plan.spec, self.target.tokenizer, self.target.context_length)

    def generate(
        self, requests: Sequence[Request], on_round: Callable[[], None] = lambda: None
    ) -> Iterator[Completion]:
        """Completions as rows end. on_round is called between rounds and may raise to stop."""
        return self._engine.generate(requests, on_round)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a completion, without EOS and other special tokens."""
        text: str = self.target.tokenizer.decode(
            list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def versions(self) -> dict[str, str]:
        """What decides bits besides the job: libraries, device and dtype."""
        libraries = {name: version(name) for name in ("torch", "transformers", "tokenizers")}
        return libraries | {"device": self.device.name, "dtype": str(self.target.model.dtype).removeprefix("torch.")}


def load_session(spec: JobSpec, threads: int | None = None) -> Session:
    """Loads a job's model on its device. threads: cores, on a CPU.

    Raises InvalidJob where the model cannot be loaded or run, ShardRetryable where memory is short.
    """
    start = time.perf_counter()
    device = get_device(spec.device, threads)
    target = load_target(spec.model, spec.revision, spec.dtype, device)
    return Session(target, device, spec, load_seconds=time.perf_counter() - start)


def _loaded_part(spec: JobSpec) -> tuple[str, str | None, str, str]:
    return spec.model, spec.revision, spec.dtype, spec.device
