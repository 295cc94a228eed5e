"""What a Gaudi card's software reads from the environment, set before torch is imported.

Importing torch or habana_frameworks fixes the mode for the rest of the process, and the mode's default differs between
releases and libraries, so nothing here is left to a default. This file imports neither.
"""

import os
from collections.abc import MutableMapping
from typing import Literal

from schemas.errors import InvalidJob

HpuMode = Literal["lazy", "eager"]

LAZY_MODE = "PT_HPU_LAZY_MODE"
MODULE_ID = "HLS_MODULE_ID"
VISIBLE_MODULES = "HABANA_VISIBLE_MODULES"

_MODES: dict[str, HpuMode] = {"1": "lazy", "0": "eager"}
_FIXED = {
    # Overrules what graphs are wrapped with: each would keep its own copy of the tensors that it reads.
    "PT_HPUGRAPH_DISABLE_TENSOR_CACHE": "1",
    # Lazy mode turns weight sharing on by itself.
    "PT_HPU_WEIGHT_SHARING": "0",
    # Shapes come from buckets; refining them as dynamic ones compiles a second time.
    "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES": "0",
}


def prepare_environment(environ: MutableMapping[str, str] = os.environ) -> None:
    """Sets all of a card's variables; for a process that has not imported torch, and for its children.

    Harmless without a card. The mode stays what the user set, else it is lazy. Raises InvalidJob for a mode that
    there is not, and where the two variables that pin a process to a card do not agree.
    """
    environ.setdefault(LAZY_MODE, "1")
    hpu_mode(environ)
    environ.update(_FIXED)
    _pin(environ)


def hpu_mode(environ: MutableMapping[str, str] = os.environ) -> HpuMode:
    """Lazy (HPU graphs) or eager (torch.compile). Raises InvalidJob where the environment does not say."""
    value = environ.get(LAZY_MODE)
    if value not in _MODES:
        found = "is not set" if value is None else f"is {value}"
        raise InvalidJob(f"{LAZY_MODE} {found}; set it to 1 (lazy, HPU graphs) or 0 (eager, torch.compile)")
    return _MODES[value]


def _pin(environ: MutableMapping[str, str]) -> None:
    """With the module id alone, the driver takes any free card where that one is not to be had."""
    module = environ.get(MODULE_ID)
    if module is None:
        return
    visible = environ.setdefault(VISIBLE_MODULES, module)
    if visible != module:
        raise InvalidJob(
            f"{MODULE_ID} is {module} and {VISIBLE_MODULES} is {visible}; pin a worker to one card by both"
        )
