"""The options of submit and run: one for each key of JobSpec, made from its fields, and --spec, --new."""

import math
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from schemas.job import JobSpec, SamplingSpec
from schemas.limits import LIMITS

F = TypeVar("F", bound=Callable[..., Any])

HELP: dict[str, str] = {
    "output": "Directory of the output; ./<input's stem>-completions when not given.",
    "prompt_column": "Column of plain text prompts; found by its name `prompt` when not given.",
    "messages_column": "Column of chat messages, list of {role, content}; found by its name `messages`.",
    "id_column": "Column that names rows in messages; found by its name `id`. Carried like every column.",
    "params_column": "Column of per-row overrides, struct or JSON text; found by its name `params`.",
    "system_prompt": "System message put before rows that have none.",
    "output_prefix": "Put before the name of each column that the job adds.",
    "save_token_ids": "Also write completion_token_ids.",
    "model": "Hub id, local folder or .gguf file.",
    "revision": "Hub commit, branch or tag of the model.",
    "allow_pickle": "Also load pickled weights, where the worker allows it; else safetensors and GGUF only.",
    "trust_remote_code": "Run Python files that come with a model, where the worker allows it.",
    "dtype": "Number format of the weights; auto is the device's own choice.",
    "device": "Which workers may take the job.",
    "compile": "Put forwards through torch.compile, on cpu and cuda: minutes of start for faster steps.",
    "engine": "generate is transformers' own, without drafts, for models that speculative cannot run.",
    "draft": "Where drafted tokens come from; auto tries what can run and keeps the best.",
    "draft_lengths": "Drafted tokens a round, k, to choose from by measurement; a single one is always used.",
    "draft_model": "Model that drafts, any tokenizer: hub id, local folder or .gguf file.",
    "draft_revision": "Hub commit, branch or tag of the draft model.",
    "draft_temperature": "What a draft model draws with, unless by text; each row's own when not given.",
    "vocabulary": "How a draft of another tokenizer is understood: by text, or by the tokens that both have.",
    "exit_layer": "How many of the model's first layers draft in early-exit.",
    "ngram_min": "Shortest match that ngram drafts from.",
    "ngram_max": "Longest match that ngram looks for.",
    "suffix_depth": "Longest match that suffix looks for.",
    "suffix_tokens": "Tokens of finished rows that suffix remembers, at most.",
    "verification": "coupled: the same tokens whatever is drafted. rejection: the same distribution.",
    "deterministic": "The same bits whatever the draft, batch mates or workers; what it needs beside, it says.",
    "kv_length": "Tokens of prompt and completion that the cache holds; needed with --deterministic.",
    "num_threads": "CPU threads of a worker; needed with --deterministic.",
    "max_graphs": "Shapes of forwards, where the device compiles each (hpu); jobctl buckets shows them.",
    "max_new_tokens": "Tokens a row may generate; a row's own params may only lower it.",
    "min_new_tokens": "No EOS, stop text or stop token before so many tokens.",
    "temperature": "0 is greedy.",
    "top_k": "Keep the k likeliest tokens; 0 is off.",
    "top_p": "Keep the likeliest tokens of this total probability; 1 is off.",
    "min_p": "Keep tokens of at least this share of the likeliest one's probability; 0 is off.",
    "repetition_penalty": "Divides the logits of tokens of prompt and completion; 1 is off.",
    "presence_penalty": "Taken from the logits of tokens of the completion.",
    "frequency_penalty": "Taken from the logits of tokens of the completion, each time they occur.",
    "logit_bias": "Added to the logit of a token, as ID=BIAS; may be repeated.",
    "bad_words": "A text that is not generated; may be repeated.",
    "stop": "A text that ends a row and is cut off; may be repeated.",
    "stop_token_ids": "Tokens that end a row, with commas between.",
    "ignore_eos": "Go on after EOS tokens.",
    "n": "Completions of each row, one output row each.",
    "seed": "Seed of the job; each row's own is derived from it.",
    "batch_size": "Rows generated together.",
    "shard_rows": "Rows queued and committed together.",
    "max_errors": "Failed rows, as a count or like 5%, beyond which the job is given up; 0: with the first.",
    "timeout_seconds": "Seconds after which the job is given up, from its submission or resumption.",
}
SHORT_NAMES = {"timeout_seconds": "--timeout"}


def option_name(key: str) -> str:
    return SHORT_NAMES.get(key) or "--" + key.replace("_", "-")


def job_options(verb: F) -> F:
    """Decorates a command with INPUT, an option for each other key of JobSpec, and --spec."""
    return chosen_options(_keys())(verb)


def chosen_options(keys: Sequence[str]) -> Callable[[F], F]:
    """The same for some of JobSpec's keys."""

    def decorate(verb: F) -> F:
        for key in reversed(keys):
            verb = _option(key, JobSpec.model_fields[key])(verb)
        verb = click.option(
            "--spec",
            "spec_file",
            type=click.Path(dir_okay=False, path_type=Path),
            help="JSON file of a job's options, with underscores; what the command line gives wins.",
        )(verb)
        return click.argument("input", required=False)(verb)

    return decorate


def _keys() -> list[str]:
    """JobSpec's own keys before those it inherits; `input` is the argument."""
    own_first = sorted(JobSpec.model_fields, key=lambda key: key in SamplingSpec.model_fields)
    return [key for key in own_first if key != "input"]


def limit_options(verb: F) -> F:
    """Decorates a command with an option for each key of Limits."""
    for key in reversed(LIMITS):
        verb = _option(key, JobSpec.model_fields[key])(verb)
    return verb


def new_option(verb: F) -> F:
    return click.option("--new", is_flag=True, help="Make a new job even where this one was submitted before.")(verb)


def threads_option(verb: F) -> F:
    text = "CPU cores for the workers together; all, where not given."
    return click.option("--threads", type=click.IntRange(min=1), default=None, help=text)(verb)


def session_option(verb: F) -> F:
    """For engines other than our own, as the tests' one; python -m workers --help describes it."""
    return click.option("--session", hidden=True, metavar="MODULE:FUNCTION")(verb)


def _option(key: str, field: FieldInfo) -> Callable[[F], F]:
    """None stands for "not given", so that a spec file's value can be told from the command line's."""
    kind = _without_none(field.annotation)
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    text = HELP[key] if default is None else f"{HELP[key]} [{_shown(default)}]"
    if kind is bool:
        names = f"{option_name(key)}/--no-{key.replace('_', '-')}"
        return click.option(names, key, default=None, help=text)
    if get_origin(kind) is dict:
        return click.option(option_name(key), key, multiple=True, callback=_mapping, metavar="ID=BIAS", help=text)
    if _is_texts(kind):
        return click.option(option_name(key), key, multiple=True, callback=_given, help=text)
    return click.option(option_name(key), key, type=_click_type(kind), default=None, help=text)


def _given(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...] | None:
    return values or None


def _mapping(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str] | None:
    """The ID=BIAS of each use of the option; what they have to be is JobSpec's to say."""
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value!r} is not ID=BIAS", context, parameter)
    return dict(value.split("=", 1) for value in values) or None


class Seconds(click.FloatRange):
    """A time from 0 on; a range alone would let `nan` through."""

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


class NumberList(click.ParamType):  # type: ignore[type-arg]
    """Whole numbers with commas between."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        try:
            return tuple(int(part) for part in str(value).split(",") if part.strip())
        except ValueError:
            self.fail(f"{value!r} is not a list of whole numbers with commas between", param, ctx)


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    return str(default or "none") if not isinstance(default, int | float) else str(default)


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        return next(kind for kind in get_args(annotation) if kind is not type(None))
    return annotation


def _plain(kind: Any) -> Any:
    """int, float or str, of a type with bounds."""
    return get_args(kind)[0] if hasattr(kind, "__metadata__") else kind


def _is_texts(kind: Any) -> bool:
    return get_origin(kind) is tuple and _plain(get_args(kind)[0]) is str


def _click_type(kind: Any) -> Any:
    """click's type of a field's annotation: a choice of a Literal's values, numbers, or int, float, str."""
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if get_origin(kind) is tuple:
        return NumberList()
    kind = _plain(kind)
    assert kind in (int, float, str), kind
    return kind
