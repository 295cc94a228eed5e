"""A real small engine without torch: tokens follow from a sample's seed, and a round takes as long as it is told.

Its model is a directory whose config.json says what it does:
round_seconds: how long a round takes. tokens_per_round: of each row of a batch. load_seconds: of the model.
refuse: why it does not run at all, as for a family that the engine cannot run.
crash_at_prompt, segfault_at_prompt, hang_at_prompt, fail_at_prompt: a prompt at which the process is killed, breaks,
does not come back, or raises an error that nobody foresaw.
fail_to_encode: a prompt that raises such an error before it is generated.
oom_above_batch, oom_at_prompt: a batch size above which, or a prompt at which there is no memory.
no_cache_above_batch: a batch size above which there is none even before a row has entered the batch.
"""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import InvalidJob, OutOfMemory, RowFailed
from schemas.generation import Completion, InputRow, Request, RowStatistics, SampleKey
from schemas.job import JobSpec
from schemas.plan import Plan
from schemas.seeds import derive_row_seed

NUM_TOKENS = 1000
NO_WEIGHTS = (2).to_bytes(8, "little") + b"{}"  # an empty safetensors file
MODEL_OPTIONS = (
    "round_seconds",
    "tokens_per_round",
    "load_seconds",
    "refuse",
    "crash_at_prompt",
    "fail_at_prompt",
    "fail_to_encode",
    "segfault_at_prompt",
    "hang_at_prompt",
    "oom_above_batch",
    "oom_at_prompt",
    "no_cache_above_batch",
)


def make_model(directory: Path, **options: Any) -> str:
    """Writes a toy model; returns its path for a job's `model`."""
    directory.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "toy", "architectures": ["Toy"], **options}
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "model.safetensors").write_bytes(NO_WEIGHTS)
    return str(directory)


def load_session(spec: JobSpec, threads: int | None) -> "ToySession":
    return ToySession(spec)


def expected_tokens(spec: JobSpec, row_index: int, sample_index: int = 0) -> tuple[int, ...]:
    """What a sample's tokens must be, whoever generates it, and however often it was begun."""
    source = random.Random(derive_row_seed(spec.seed, row_index, sample_index))
    return tuple(source.randrange(NUM_TOKENS) for _ in range(spec.max_new_tokens))


class ToySession:
    def __init__(self, spec: JobSpec) -> None:
        began = time.monotonic()
        self.spec = spec
        self.options = json.loads((Path(spec.model) / "config.json").read_text())
        if "refuse" in self.options:
            raise InvalidJob(self.options["refuse"])
        time.sleep(self.options.get("load_seconds", 0))
        self.load_seconds = time.monotonic() - began
        self._num_rounds = 0

    def serves(self, spec: JobSpec) -> bool:
        return (spec.model, spec.revision, spec.device) == (self.spec.model, self.spec.revision, self.spec.device)

    def configure(self, spec: JobSpec) -> None:
        self.spec = spec

    def encode(self, row: InputRow, plan: Plan) -> list[Request]:
        if row.error is not None:
            raise RowFailed(*row.error)
        prompt = row.prompt or ""
        if prompt == "too long":
            raise RowFailed("prompt_too_long", "the prompt is too long")
        if prompt == self.options.get("fail_to_encode"):
            raise ArithmeticError("nobody foresaw this prompt")
        seeds = [derive_row_seed(self.spec.seed, row.row_index, sample) for sample in range(self.spec.n)]
        common = (row.row_index, tuple(prompt.encode()), self.spec.max_new_tokens)
        return [Request(*common, seed, sample_index=sample) for sample, seed in enumerate(seeds)]

    def generate(
        self,
        requests: Sequence[Request],
        on_round: Callable[[], None],
        on_admit: Callable[[Sequence[SampleKey]], None] = lambda keys: None,
    ) -> Iterator[Completion]:
        """Batches of batch_size samples, each a few rounds long; samples of a batch end in reverse order."""
        self._num_rounds = 0
        if self.spec.batch_size > self.options.get("no_cache_above_batch", self.spec.batch_size):
            raise OutOfMemory("the toy has no memory for its cache")
        for first in range(0, len(requests), self.spec.batch_size):
            batch = requests[first : first + self.spec.batch_size]
            on_admit([request.key for request in batch])
            self._check_memory(batch)
            for _ in range(self._rounds()):
                time.sleep(self.options.get("round_seconds", 0))
                on_round()
                self._num_rounds += 1
            for request in reversed(batch):
                yield self._completion(request)

    def decode(self, token_ids: Sequence[int]) -> str:
        return " ".join(f"t{token}" for token in token_ids)

    def versions(self) -> dict[str, str]:
        return {"engine": "toy"}

    def shapes(self) -> dict[str, Any]:
        """It compiles nothing."""
        return {"num_new": 0}

    def speculation(self) -> dict[str, Any]:
        """It drafts nothing, in each of its rounds."""
        return {"rounds_by_k": {"none": {"0": self._num_rounds}}}

    def _check_memory(self, batch: Sequence[Request]) -> None:
        prompts = [bytes(request.prompt_token_ids).decode() for request in batch]
        too_many = self.spec.batch_size > self.options.get("oom_above_batch", self.spec.batch_size)
        if too_many or self.options.get("oom_at_prompt") in prompts:
            raise OutOfMemory("the toy has no memory left")

    def _rounds(self) -> int:
        return -(-self.spec.max_new_tokens // self.options.get("tokens_per_round", 4))

    def _completion(self, request: Request) -> Completion:
        prompt = bytes(request.prompt_token_ids).decode()
        if prompt == self.options.get("crash_at_prompt"):
            os.kill(os.getpid(), signal.SIGKILL)
        if prompt == self.options.get("segfault_at_prompt"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if prompt == self.options.get("hang_at_prompt"):
            time.sleep(3600)  # a forward that never returns
        if prompt == self.options.get("fail_at_prompt"):
            raise ArithmeticError("nobody foresaw this")
        statistics = RowStatistics(num_target_steps=request.max_new_tokens - 1)
        tokens = expected_tokens(self.spec, request.row_index, request.sample_index)
        return Completion(request.row_index, tokens, "length", statistics, request.sample_index)


def write_input(path: Path, prompts: Sequence[str | None]) -> str:
    """A Parquet file with a `prompt` and a carried column; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    carried = [f"c{index}" for index in range(len(prompts))]
    pq.write_table(pa.table({"prompt": pa.array(prompts, pa.string()), "carried": carried}), path)
    return str(path)


def toy_spec(directory: Path, num_rows: int, prompts: Sequence[str | None] | None = None, **options: Any) -> JobSpec:
    """A job over `num_rows` prompts in `directory`. options: of the model where it knows them, else of the job."""
    model_options = {name: options.pop(name) for name in MODEL_OPTIONS if name in options}
    values = {
        "input": write_input(directory / "in.parquet", prompts or [f"prompt {index}" for index in range(num_rows)]),
        "output": str(directory / "out"),
        "model": make_model(directory / "model", **model_options),
        "shard_rows": 8,
        "batch_size": 4,
        "max_new_tokens": 8,
        **options,
    }
    return JobSpec.from_mapping(values)
