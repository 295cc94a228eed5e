"""habana_frameworks.torch.hpu; what is of graphs is there in lazy mode alone."""

from typing import Any

from habana_frameworks.torch.hpu.metrics import metric_global as metric_global
from habana_frameworks.torch.hpu.metrics import metric_localcontext as metric_localcontext
from habana_frameworks.torch.utils.internal import is_lazy
from tests.habana_fake.card import MEMORY_BYTES, card

if is_lazy():
    from habana_frameworks.torch.hpu.graphs import wrap_in_hpu_graph as wrap_in_hpu_graph


def init() -> None:
    if not card.is_acquired:
        card.acquire()


def is_initialized() -> bool:
    return card.is_acquired


def is_available() -> bool:
    return device_count() > 0


def device_count() -> int:
    return int(card.is_there)


def current_device() -> int:
    init()
    return 0


def get_device_name(device: Any = None) -> str:
    init()
    return "GAUDI3"


def synchronize() -> None:
    init()


def memory_stats(device: Any = None) -> dict[str, int]:
    init()
    return {"Limit": MEMORY_BYTES, "InUse": 1 << 30, "MaxInUse": 1 << 30}


def mem_get_info(device: Any = None) -> tuple[int, int]:
    stats = memory_stats(device)
    return stats["Limit"] - stats["InUse"], stats["Limit"]


def is_autocast_hpu_enabled() -> bool:
    return False


# What torch itself asks a device module for.
def _is_in_bad_fork() -> bool:
    return False


def _lazy_init() -> None:
    init()
