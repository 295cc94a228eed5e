"""How far a model's files are trusted: a job names its model, and anybody may submit a job.

Weights are safetensors or GGUF, and code that comes with a model is not run, unless the job asks for it and the worker
allows it (jobs/allowed.py).
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

from transformers import PretrainedConfig
from transformers.dynamic_module_utils import get_class_from_dynamic_module
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from schemas.errors import InvalidJob
from schemas.job import JobSpec

ASK_FOR_TRUST = "give --trust-remote-code, which the worker has to allow too, or choose another model"
_OF_ANOTHER_REPOSITORY = "--"  # between the repository and the class


class Trust(NamedTuple):
    allow_pickle: bool = False
    remote_code: bool = False

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        return cls(spec.allow_pickle, spec.trust_remote_code)

    def weights_keywords(self) -> dict[str, Any]:
        """For from_pretrained. Pickles are read as tensors alone: torch refuses those that would call anything."""
        return {"use_safetensors": None if self.allow_pickle else True, "weights_only": True}


NO_TRUST = Trust()


def refuse_code_of_others(name: str, keywords: Mapping[str, Any]) -> None:
    """Raises InvalidJob for code that lies in another repository: the job's revision does not pin it."""
    config, _ = PretrainedConfig.get_config_dict(name, **keywords)
    for reference in (*_references(config), *_references(get_tokenizer_config(name, **keywords))):
        if _OF_ANOTHER_REPOSITORY in reference:
            raise InvalidJob(f"model {name}: its code is {reference}, of another repository, which no revision pins")


def own_class(config: Any, name: str, keywords: Mapping[str, Any]) -> Any:
    """The class that the model's own code generates text with, or None. It imports that code."""
    auto_class = "AutoModelForSeq2SeqLM" if config.is_encoder_decoder else "AutoModelForCausalLM"
    reference = (getattr(config, "auto_map", None) or {}).get(auto_class)
    if reference is None:
        return None
    return get_class_from_dynamic_module(reference, name, revision=keywords.get("revision"))


def _references(config: Mapping[str, Any]) -> Iterator[str]:
    """`module.Class`, or `owner/name--module.Class`; a tokenizer has lists of them."""
    auto_map = config.get("auto_map") or {}
    for value in auto_map.values() if isinstance(auto_map, Mapping) else [auto_map]:
        yield from (str(one) for one in (value if isinstance(value, list | tuple) else [value]) if one is not None)
