"""What differs between a saved job and the one asked for, in words."""

from collections.abc import Sequence

from jobs.texts import shortened
from schemas.job import JobSpec
from schemas.limits import LIMITS
from schemas.plan import InputFile


def spec_difference(saved: JobSpec, asked: JobSpec) -> str | None:
    """`--shard-rows is 64 there and 32 here`, for the first key that differs; limits may."""
    for key in JobSpec.model_fields:
        there, here = getattr(saved, key), getattr(asked, key)
        if there != here and key not in LIMITS:
            name = "the input" if key == "input" else "--" + key.replace("_", "-")
            return f"{name} is {shortened(there)} there and {shortened(here)} here"
    return None


def files_difference(saved: Sequence[InputFile], found: Sequence[InputFile]) -> str | None:
    """`input file … has changed`, for the first one that differs in size, footer or Hive directory."""
    by_path = {file.path: file for file in found}
    for file in saved:
        now = by_path.pop(file.path, None)
        if now is None:
            return f"input file {file.path} is gone"
        if now.model_copy(update={"first_row": file.first_row}) != file:
            return f"input file {file.path} has changed"
    new = next(iter(by_path), None)
    return None if new is None else f"input file {new} is new"
