"""The spec of a submit: its options over a --spec file over defaults."""

import json
import re
from collections import Counter
from pathlib import Path, PurePath
from typing import Any

from pydantic import ValidationError

from jobs.cli.options import option_name
from jobs.texts import is_utf8, shortened
from schemas.errors import InvalidJob
from schemas.job import JobSpec
from schemas.limits import Limits
from schemas.values import first_problem


def build_spec(given: dict[str, Any], spec_file: Path | None) -> JobSpec:
    """The spec from the command line over the file. Raises InvalidJob naming the option that is wrong.

    given: JobSpec's keys as click parsed them, None where the command line has none.
    """
    keys = read_spec_file(spec_file) if spec_file is not None else {}
    keys.update({key: value for key, value in given.items() if value is not None})
    if not keys.get("input"):
        raise InvalidJob("no input: name a Parquet file, a directory, a glob or a URL")
    if not keys.get("model"):
        raise InvalidJob("no model: give --model, a hub id, a local folder or a .gguf file")
    keys.setdefault("output", default_output(str(keys["input"])))
    try:
        return JobSpec.model_validate(keys)
    except ValidationError as error:
        raise InvalidJob(_in_option_words(error)) from error


def limits_of(given: dict[str, Any]) -> Limits:
    """The limits on the command line, None where it has none. Raises InvalidJob naming the option that is wrong."""
    try:
        return Limits.model_validate(given)
    except ValidationError as error:
        raise InvalidJob(_in_option_words(error)) from error


def read_spec_file(path: Path) -> dict[str, Any]:
    """Raises InvalidJob where the file is missing, not a JSON object, or has a key that JobSpec lacks."""
    try:
        keys = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_without_doubles)
    except OSError as error:
        raise InvalidJob(f"--spec {path}: {error.strerror}") from error
    except InvalidJob as error:
        raise InvalidJob(f"--spec {path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidJob(f"--spec {path} is not JSON: {error}") from error
    if not isinstance(keys, dict):
        raise InvalidJob(f"--spec {path} must hold one JSON object of options")
    if not is_utf8(json.dumps(keys, ensure_ascii=False)):
        raise InvalidJob(f"--spec {path}: a text in it is half a character (a lone surrogate, \\ud800 to \\udfff)")
    for key in keys:
        if key not in JobSpec.model_fields:
            raise InvalidJob(
                f"--spec {path}: unknown option {shortened(key)}; "
                "they are those of jobctl submit --help, with underscores"
            )
    return keys


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises InvalidJob where a key is there twice: JSON readers take the last one and say nothing."""
    keys = dict(pairs)
    if len(keys) < len(pairs):
        double = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise InvalidJob(f"{shortened(double)} is given twice")
    return keys


def default_output(input_name: str) -> str:
    """`./<stem>-completions`, of the last part of the path that is neither a pattern nor a Hive directory."""
    parts = [p for p in PurePath(input_name.partition("://")[2] or input_name).parts if p not in ("/", ".", "..")]
    plain = [p for p in parts if not re.search(r"[*?\[\]=]", p)]
    stem = PurePath(plain[-1]).stem if plain else "prompts"
    return f"{stem}-completions"


def _in_option_words(error: ValidationError) -> str:
    """pydantic's first complaint, with options as they are typed. JobSpec's own begin with the name of one."""
    problem = error.errors(include_url=False)[0]
    if not problem["loc"]:
        return _with_option_names(first_problem(error))
    key, *within = problem["loc"]
    value = f" {shortened(problem['input'])}:" if within else ""
    return f"{option_name(str(key))}:{value} {first_problem(error).partition(': ')[2]}"


def _with_option_names(complaint: str) -> str:
    first, _, rest = complaint.partition(" ")
    words = re.sub(r"[a-z]+(?:_[a-z]+)+", lambda found: _named(found[0]), rest)
    return f"{_named(first)} {words}"


def _named(word: str) -> str:
    return option_name(word) if word in JobSpec.model_fields else word
