"""JobSpec: everything that decides a job's output, and its limits. Its keys are jobctl's options with underscores."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from schemas.limits import LIMITS, Limits
from schemas.values import Value, digest_of

DeviceKind = Literal["auto", "cpu", "cuda", "hpu"]
DeviceKinds: tuple[DeviceKind, ...] = ("auto", "cpu", "cuda", "hpu")
DraftKind = Literal["none", "ngram", "suffix", "model", "early-exit", "auto"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
EngineKind = Literal["speculative", "generate"]
Verification = Literal["coupled", "rejection"]
Vocabulary = Literal["text", "intersection"]

Positive = Annotated[int, Field(ge=1, lt=2**31)]
NotNegative = Annotated[int, Field(ge=0, lt=2**31)]
Text = Annotated[str, Field(min_length=1, pattern=r"^[^\x00-\x1f]*$")]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Temperature = Annotated[float, Field(ge=0, le=100)]
TopP = Annotated[float, Field(gt=0, le=1)]
MinP = Annotated[float, Field(ge=0, le=1)]
RepetitionPenalty = Annotated[float, Field(ge=0.01, le=100)]
Penalty = Annotated[float, Field(ge=-100, le=100)]
NumSamples = Annotated[int, Field(ge=1, le=1024)]
NotEmpty = Annotated[str, Field(min_length=1)]
TokenId = NotNegative
Bias = Annotated[float, Field(ge=-100, le=100)]  # far beyond any logit, and far from where float32 overflows
DraftLength = Annotated[int, Field(ge=0, le=32)]


class SamplingSpec(Value):
    """How tokens are drawn, and where a row ends. temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 are off.

    repetition_penalty: divides or multiplies the logits of tokens of prompt and output; 1 is off (Keskar et al. 2019,
    arXiv 1909.05858). presence_penalty, frequency_penalty: taken from the logits of tokens of the output, once and for
    each time. logit_bias: added to logits, by token id. bad_words: texts that are not generated. stop: texts that end a
    row and are cut off it. min_new_tokens: no EOS, stop or stop token before. n: completions of each row.
    """

    max_new_tokens: Positive = 128
    min_new_tokens: NotNegative = 0
    temperature: Temperature = 0.0
    top_k: NotNegative = 0
    top_p: TopP = 1.0
    min_p: MinP = 0.0
    repetition_penalty: RepetitionPenalty = 1.0
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    logit_bias: dict[TokenId, Bias] = Field(default_factory=dict)
    bad_words: tuple[NotEmpty, ...] = ()
    stop: tuple[NotEmpty, ...] = ()
    stop_token_ids: tuple[TokenId, ...] = ()
    ignore_eos: bool = False
    n: NumSamples = 1


class RowParams(Value):
    """One row's `params`: what it overrides of the job. max_new_tokens may only lower the job's."""

    max_new_tokens: Positive | None = None
    min_new_tokens: NotNegative | None = None
    temperature: Temperature | None = None
    top_k: NotNegative | None = None
    top_p: TopP | None = None
    min_p: MinP | None = None
    repetition_penalty: RepetitionPenalty | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[TokenId, Bias] | None = None
    bad_words: tuple[NotEmpty, ...] | None = None
    stop: tuple[NotEmpty, ...] | None = None
    stop_token_ids: tuple[TokenId, ...] | None = None
    ignore_eos: bool | None = None
    n: NumSamples | None = None
    seed: Seed | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _no_booleans(cls, value: Any, info: ValidationInfo) -> Any:
        # Python takes true for 1.
        if isinstance(value, bool) != (info.field_name == "ignore_eos"):
            raise ValueError("true or false is needed" if info.field_name == "ignore_eos" else "not true or false")
        return value

    @field_validator("stop", "bad_words", mode="before")
    @classmethod
    def _one_text(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        """A Parquet map is read as pairs, and a struct has every row's keys, null where a row lacks them."""
        pairs = value.items() if isinstance(value, Mapping) else value
        try:
            return {key: bias for key, bias in pairs if bias is not None}
        except (TypeError, ValueError) as error:
            raise ValueError("a number for each token id is needed") from error


class JobSpec(SamplingSpec, Limits):
    """What the user asks for. `resolved` specs have absolute paths and pinned revisions.

    revision, draft_revision: a hub commit or branch; once resolved, the hub commit, or `sha256:…` of a local model.
    allow_pickle: weights may be pickles, where the worker allows it. trust_remote_code: so may models' own code be run.
    engine: `speculative` is ours; `generate` is transformers' own, without drafts, for families that ours cannot run.
    compile: forwards go through torch.compile, on cpu and cuda.
    draft_lengths: numbers of drafted tokens a round, k, that the controller chooses from; a single one is always used.
    draft_temperature: what a draft model's own tokens are drawn with; None is each row's.
    vocabulary: how a draft model of another tokenizer is understood: by text, or by the tokens that both have.
    suffix_depth: the longest match of `suffix`. suffix_tokens: tokens of finished rows that it remembers.
    deterministic: every shape that a row goes through depends on job and row alone. kv_length: tokens of prompt and
        completion that its cache holds. num_threads: a worker's, on a CPU.
    max_graphs: shapes that forwards may have, where a device compiles each: the target's and a draft model's together.
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
    allow_pickle: bool = False
    trust_remote_code: bool = False
    dtype: Dtype = "auto"
    device: DeviceKind = "auto"
    compile: bool = False
    engine: EngineKind = "speculative"

    draft: DraftKind = "ngram"
    draft_lengths: Annotated[tuple[DraftLength, ...], Field(min_length=1)] = (0, 1, 2, 4, 8)
    draft_model: Text | None = None
    draft_revision: str | None = None
    draft_temperature: Temperature | None = None
    vocabulary: Vocabulary = "text"
    exit_layer: Positive | None = None
    ngram_min: Positive = 1
    ngram_max: Positive = 3
    suffix_depth: Positive = 24
    suffix_tokens: NotNegative = 200_000
    verification: Verification = "coupled"
    deterministic: bool = False
    kv_length: Positive | None = None
    num_threads: Positive | None = None
    max_graphs: Positive = 40

    seed: Seed = 0
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 8
    shard_rows: Positive = 64

    @model_validator(mode="before")
    @classmethod
    def _generate_drafts_nothing(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("engine") == "generate":
            return {"draft": "none", **values}
        return values

    @field_validator("draft_lengths")
    @classmethod
    def _ascending(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(lengths)))

    @model_validator(mode="after")
    def _options_agree(self) -> Self:
        for complaint in (self._complaint_about_input(), self._complaint_about_draft(), self._complaint_about_engine()):
            if complaint is not None:
                raise ValueError(complaint)
        return self

    def _complaint_about_input(self) -> str | None:
        if self.prompt_column is not None and self.messages_column is not None:
            return "prompt_column and messages_column exclude each other; give one"
        if self.min_new_tokens > self.max_new_tokens:
            return f"min_new_tokens {self.min_new_tokens} is above max_new_tokens {self.max_new_tokens}"
        return None

    def _complaint_about_draft(self) -> str | None:
        if self.ngram_min > self.ngram_max:
            return f"ngram_min {self.ngram_min} is above ngram_max {self.ngram_max}"
        if self.draft == "model" and self.draft_model is None:
            return "draft model needs draft_model, the model that drafts"
        if self.draft_model is not None and self.draft not in ("model", "auto"):
            return f"draft_model is not used by draft {self.draft}; give draft model or auto"
        if self.vocabulary == "intersection" and self.draft_model is None:
            return "vocabulary intersection is of a draft_model, and none is given"
        if self.draft_revision is not None and self.draft_model is None:
            return "draft_revision is of a draft_model, and none is given"
        if self.draft_temperature is not None and self.draft not in ("model", "early-exit", "auto"):
            return f"draft_temperature is not used by draft {self.draft}, which has no model"
        if self.draft == "early-exit" and self.exit_layer is None:
            return "draft early-exit needs exit_layer, how many of the model's layers draft"
        if self.exit_layer is not None and self.draft not in ("early-exit", "auto"):
            return f"exit_layer is not used by draft {self.draft}; give draft early-exit or auto"
        return None

    def _complaint_about_engine(self) -> str | None:
        if self.engine == "generate" and self.draft != "none":
            return f"engine generate takes no draft {self.draft}; leave it out, or give engine speculative"
        if self.engine == "generate" and self.verification != "coupled":
            return f"verification {self.verification} needs engine speculative"
        if not self.deterministic:
            return None
        if self.engine == "generate":
            return "deterministic needs engine speculative"
        if self.verification != "coupled":
            return "deterministic needs verification coupled"
        for name in ("kv_length", "num_threads"):
            if getattr(self, name) is None:
                return f"deterministic needs {name}, since it decides bits"
        return "deterministic needs a dtype other than auto, since it decides bits" if self.dtype == "auto" else None

    @property
    def name(self) -> str:
        return PurePath(self.input).name

    def deciding(self) -> dict[str, Any]:
        """What decides the output, as JSON: a job is the same one with other limits."""
        return self.model_dump(mode="json", exclude=set(LIMITS))

    def digest(self) -> str:
        return digest_of(self.deciding())
