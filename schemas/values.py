"""The base of every value that crosses a process: frozen, JSON, unknown keys refused."""

import hashlib
import json
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.errors import InvalidJob


class Value(BaseModel):
    """A small frozen value with one canonical JSON form (sorted keys), so that equal values hash equally."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def to_json(self) -> str:
        return _canonical(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Raises InvalidJob with one line that names the key that is wrong."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise InvalidJob(f"{cls.__name__}: {first_problem(error)}") from error

    @classmethod
    def from_mapping(cls, mapping: dict[str, Any]) -> Self:
        """Raises InvalidJob with one line that names the key that is wrong."""
        try:
            return cls.model_validate(mapping)
        except ValidationError as error:
            raise InvalidJob(f"{cls.__name__}: {first_problem(error)}") from error

    def digest(self) -> str:
        return digest_of(self.model_dump(mode="json"))


def digest_of(values: dict[str, Any]) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(_canonical(values).encode()).hexdigest()


def _canonical(values: dict[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, ensure_ascii=False)


def first_problem(error: ValidationError) -> str:
    """One line for pydantic's first complaint: where, what."""
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown option {where!r}"
    reason = str(problem["msg"]).removeprefix("Value error, ").replace("Tuple", "List").replace("tuple", "list")
    return f"{where}: {reason}" if where else reason
