"""A row's own options over the job's."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from schemas.errors import RowFailed
from schemas.job import JobSpec, RowParams, SamplingSpec
from schemas.values import first_problem


def row_sampling(params: RowParams, spec: JobSpec) -> SamplingSpec:
    """What holds for the row. Raises RowFailed `bad_params` where its own options and the job's exclude each other."""
    job = {name: getattr(spec, name) for name in SamplingSpec.model_fields}
    own = params.model_dump(exclude_none=True, exclude={"seed"})
    sampling = SamplingSpec.model_construct(**job | own)  # both were validated
    if sampling.min_new_tokens > sampling.max_new_tokens:
        raise RowFailed(
            "bad_params",
            f"params: min_new_tokens {sampling.min_new_tokens} is above max_new_tokens {sampling.max_new_tokens}",
        )
    return sampling


def row_params(params: Any, spec: JobSpec) -> RowParams:
    """The row's overrides; a mapping, JSON text or None. Raises RowFailed `bad_params` that names the key."""
    mapping = _mapping(params)
    try:
        overrides = RowParams.model_validate({key: value for key, value in mapping.items() if value is not None})
    except ValidationError as error:
        raise RowFailed("bad_params", f"params: {first_problem(error)}") from error
    if overrides.max_new_tokens is not None and overrides.max_new_tokens > spec.max_new_tokens:
        raise RowFailed(
            "bad_params",
            f"params: max_new_tokens {overrides.max_new_tokens} is above the job's {spec.max_new_tokens}; "
            "raise --max-new-tokens",
        )
    return overrides


def _mapping(params: Any) -> Mapping[str, Any]:
    if isinstance(params, str) and params.strip():
        try:
            params = json.loads(params)
        except (ValueError, RecursionError) as error:
            raise RowFailed("bad_params", f"params is not JSON: {error}") from error
    if params is None or params == "" or (isinstance(params, str) and not params.strip()):
        return {}
    if not isinstance(params, Mapping):
        raise RowFailed("bad_params", f"params must be a mapping or a JSON object, not {type(params).__name__}")
    return params
