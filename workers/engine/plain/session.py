"""A loaded model between shards, for jobs with engine generate."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from schemas.generation import Completion, InputRow, Request, SampleKey
from schemas.job import JobSpec
from schemas.plan import Plan
from workers.devices.base import Device
from workers.engine.loaded import loaded_part, versions_of
from workers.engine.memory import raising_out_of_memory
from workers.engine.plain.engine import GenerateEngine
from workers.engine.plain.model import UNBOUNDED, PlainModel
from workers.engine.prompts import encode_row


class GenerateSession:
    """A model on a device, and the engine that the job's options make.

    load_seconds: how long loading took.
    """

    def __init__(self, model: PlainModel, device: Device, spec: JobSpec, load_seconds: float = 0.0) -> None:
        self.model, self.device, self.load_seconds = model, device, load_seconds
        self.configure(spec)

    def serves(self, spec: JobSpec) -> bool:
        """Whether a job runs on what is loaded: the same engine, model, revision, dtype and device."""
        return loaded_part(spec) == loaded_part(self._spec)

    def configure(self, spec: JobSpec) -> None:
        """Takes on a job that it serves."""
        self._spec = spec
        self._engine = GenerateEngine(self.model, self.device, spec.batch_size, spec.kv_length)

    def encode(self, row: InputRow, plan: Plan) -> list[Request]:
        """A request for each sample. Raises RowFailed for a bad row, InvalidJob where all would be."""
        requests = encode_row(row, plan.spec, self.model.tokenizer, UNBOUNDED, self.model.vocab_size)
        self.model.check_prompt(len(requests[0].prompt_token_ids), plan.spec.kv_length)
        return requests

    def generate(
        self,
        requests: Sequence[Request],
        on_round: Callable[[], None] = lambda: None,
        on_admit: Callable[[Sequence[SampleKey]], None] = lambda keys: None,
    ) -> Iterator[Completion]:
        """Completions after each batch. on_round is called between steps, on_admit before each batch with its rows;
        both may raise to stop. Raises OutOfMemory."""
        return raising_out_of_memory(self._engine.generate(requests, on_round, on_admit), release=lambda: None)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a completion, without EOS and other special tokens."""
        return self.model.decode(token_ids)

    def speculation(self) -> Mapping[str, Any]:
        """Nothing: this engine drafts nothing."""
        return {}

    def shapes(self) -> Mapping[str, Any]:
        """Nothing: it plans none."""
        return {}

    def versions(self) -> dict[str, str]:
        """What decides bits besides the job: libraries, device and dtype."""
        return versions_of(self.device, self.model.model.dtype)
