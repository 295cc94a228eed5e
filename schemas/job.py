"""JobSpec: everything that decides a job's output. Its keys are jobctl's options with underscores."""

from pathlib import PurePath
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from schemas.values import Value

DeviceKind = Literal["auto", "cpu", "cuda", "hpu"]
DeviceKinds: tuple[DeviceKind, ...] = ("auto", "cpu", "cuda", "hpu")
DraftKind = Literal["none", "ngram"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]

Positive = Annotated[int, Field(ge=1, lt=2**31)]
Text = Annotated[str, Field(min_length=1, pattern=r"^[^\x00-\x1f]*$")]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Temperature = Annotated[float, Field(ge=0, le=100)]
TopK = Annotated[int, Field(ge=0, lt=2**31)]
TopP = Annotated[float, Field(gt=0, le=1)]


class SamplingSpec(Value):
    """How tokens are drawn. temperature 0 is greedy; top_k 0 and top_p 1 are off."""

    max_new_tokens: Positive = 128
    temperature: Temperature = 0.0
    top_k: TopK = 0
    top_p: TopP = 1.0


class RowParams(Value):
    """One row's `params`: what it overrides of the job. max_new_tokens may only lower the job's."""

    max_new_tokens: Positive | None = None
    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: TopP | None = None
    seed: Seed | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _no_booleans(cls, value: Any) -> Any:
        # Python takes true for 1.
        if isinstance(value, bool):
            raise ValueError("a number is needed, not true or false")
        return value


class JobSpec(SamplingSpec):
    """What the user asks for. `resolved` specs have absolute paths and a pinned revision.

    revision: a hub commit or branch; once resolved, the hub commit, or `sha256:…` of a local model.
    num_draft_tokens: k, drafted tokens a round at most; the window is k + 1.
    batch_size: slots, rows generated together. shard_rows: rows queued and committed together.
    output_prefix: put before each column we add, where a carried column has the same name.
    """

    input: Text
    output: Text
    prompt_column: str | None = None
    messages_column: str | None = None
    id_column: str | None = None
    params_column: str | None = None
    system_prompt: str | None = None
    output_prefix: str = ""
    save_token_ids: bool = False

    model: Text
    revision: str | None = None
    dtype: Dtype = "auto"
    device: DeviceKind = "auto"

    draft: DraftKind = "ngram"
    num_draft_tokens: Annotated[int, Field(ge=1, le=32)] = 4
    ngram_min: Positive = 1
    ngram_max: Positive = 3

    seed: Seed = 0
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 8
    shard_rows: Positive = 64

    @model_validator(mode="after")
    def _options_agree(self) -> Self:
        if self.prompt_column is not None and self.messages_column is not None:
            raise ValueError("prompt_column and messages_column exclude each other; give one")
        if self.ngram_min > self.ngram_max:
            raise ValueError(f"ngram_min {self.ngram_min} is above ngram_max {self.ngram_max}")
        return self

    @property
    def window(self) -> int:
        """Positions verified at once: k drafted tokens and the one before them."""
        return 1 if self.draft == "none" else self.num_draft_tokens + 1

    @property
    def name(self) -> str:
        return PurePath(self.input).name
