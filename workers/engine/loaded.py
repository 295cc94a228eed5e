"""What sessions of both engines say of the model that they hold."""

from importlib.metadata import version

import torch

from schemas.job import JobSpec
from workers.devices.base import Device


def loaded_part(spec: JobSpec) -> tuple[object, ...]:
    """The part of a job that decides what is loaded, and for which engine."""
    models = (spec.engine, spec.model, spec.revision, spec.draft_model, spec.draft_revision)
    held = (spec.dtype, spec.device, spec.compile, spec.num_threads)
    return (*models, spec.allow_pickle, spec.trust_remote_code, *held)


def versions_of(device: Device, dtype: torch.dtype) -> dict[str, str]:
    """What decides bits besides the job: libraries, device and dtype."""
    libraries = {name: version(name) for name in ("torch", "transformers", "tokenizers")}
    return libraries | {"device": device.name, "dtype": str(dtype).removeprefix("torch.")}
