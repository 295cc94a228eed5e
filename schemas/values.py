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
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)

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
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def first_problem(error: ValidationError) -> str:
    """One line for pydantic's first complaint: where, what."""
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown option {where!r}"
    reason = str(problem["msg"]).removeprefix("Value error, ").replace("Tuple", "List").replace("tuple", "list")
    return f"{where}: {reason}" if where else reason
