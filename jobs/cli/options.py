"""The options of submit and run: one for each key of JobSpec, made from its fields, and --spec, --new."""

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from schemas.job import JobSpec, SamplingSpec

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
    "dtype": "Number format of the weights; auto is the device's own choice.",
    "device": "Which workers may take the job.",
    "draft": "Where drafted tokens come from.",
    "num_draft_tokens": "Drafted tokens a round, at most (k).",
    "ngram_min": "Shortest match that ngram drafts from.",
    "ngram_max": "Longest match that ngram looks for.",
    "max_new_tokens": "Tokens a row may generate; a row's own params may only lower it.",
    "temperature": "0 is greedy.",
    "top_k": "Keep the k likeliest tokens; 0 is off.",
    "top_p": "Keep the likeliest tokens of this total probability; 1 is off.",
    "seed": "Seed of the job; each row's own is derived from it.",
    "batch_size": "Rows generated together.",
    "shard_rows": "Rows queued and committed together.",
}


def option_name(key: str) -> str:
    return "--" + key.replace("_", "-")


def job_options(verb: F) -> F:
    """Decorates a command with INPUT, an option for each other key of JobSpec, and --spec."""
    for key in reversed(_keys()):
        verb = _option(key, JobSpec.model_fields[key])(verb)
    verb = click.option(
        "--spec",
        "spec_file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="JSON file of these options, with underscores; what the command line gives wins.",
    )(verb)
    return click.argument("input", required=False)(verb)


def _keys() -> list[str]:
    """JobSpec's own keys before those it inherits; `input` is the argument."""
    own_first = sorted(JobSpec.model_fields, key=lambda key: key in SamplingSpec.model_fields)
    return [key for key in own_first if key != "input"]


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
    text = HELP[key] if field.default is None or field.is_required() else f"{HELP[key]} [{_shown(field.default)}]"
    if kind is bool:
        names = f"{option_name(key)}/--no-{key.replace('_', '-')}"
        return click.option(names, key, default=None, help=text)
    return click.option(option_name(key), key, type=_click_type(kind), default=None, help=text)


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    return str(default) or "none"


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        return next(kind for kind in get_args(annotation) if kind is not type(None))
    return annotation


def _click_type(kind: Any) -> Any:
    """click's type of a field's annotation: a choice of a Literal's values, or int, float, str."""
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    kind = get_args(kind)[0] if hasattr(kind, "__metadata__") else kind
    assert kind in (int, float, str), kind
    return kind
