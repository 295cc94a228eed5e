"""What a job may do here: where it writes, which models it loads, whether their code is run. Settings decide.

A worker goes by its own settings, whatever was submitted; who submits checks the same early.
"""

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from jobs.input.paths import is_inside
from jobs.plan.models import is_local_model
from jobs.settings import Settings
from jobs.storage.inside import check_untouched
from jobs.storage.layout import Layout
from schemas.errors import InvalidJob
from schemas.job import JobSpec


def check_allowed(spec: JobSpec, layout: Layout, settings: Settings) -> None:
    """Before anything is written or loaded. Raises InvalidJob, one line that names what is not allowed."""
    check_output(layout, settings)
    for model in (spec.model, spec.draft_model):
        if model is not None and settings.allowed_models and not _is_listed(model, settings.allowed_models):
            raise InvalidJob(f"model {model} is not among JOBCTL_ALLOWED_MODELS; choose another one")
    if spec.allow_pickle and not settings.allow_pickle:
        raise InvalidJob("--allow-pickle is not allowed here; set JOBCTL_ALLOW_PICKLE=true, or convert to safetensors")
    if spec.trust_remote_code and not settings.allow_remote_code:
        raise InvalidJob("--trust-remote-code is not allowed here; set JOBCTL_ALLOW_REMOTE_CODE=true")


def check_output(layout: Layout, settings: Settings) -> None:
    """Raises InvalidJob for an output outside the allowed ones or, where none are named, one of another user's."""
    roots = settings.allowed_outputs
    if roots and not any(is_inside(str(layout.output), root) for root in roots):
        raise InvalidJob(f"output {layout.output} is not under JOBCTL_ALLOWED_OUTPUTS; choose another --output")
    check_untouched(layout)
    owner = _owner(layout.control_dir)
    if not roots and owner not in (None, os.geteuid()):
        raise InvalidJob(
            f"{layout.control_dir} belongs to user {owner}, and this process to user {os.geteuid()}; "
            "choose another --output, or set JOBCTL_ALLOWED_OUTPUTS"
        )


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_listed(model: str, listed: Iterable[str]) -> bool:
    if is_local_model(model):
        path = os.path.expanduser(model)
        return any(is_inside(path, Path(entry).expanduser()) for entry in listed if is_local_model(entry))
    return any(fnmatchcase(model, entry) for entry in listed if not is_local_model(entry))
