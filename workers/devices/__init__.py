"""Devices by name. Each is imported when it is asked for, so that none needs what another is built on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from schemas.job import DeviceKind

if TYPE_CHECKING:
    from workers.devices.base import Device

logger = logging.getLogger(__name__)


def get_device(kind: DeviceKind, threads: int | None = None, is_compiled: bool = False) -> Device:
    """The device that a job asks for; `auto` is the first of hpu, cuda and cpu that is there.

    threads: how many cores a CPU device computes with; None leaves torch's own choice. is_compiled: whether forwards go
    through torch.compile; a Gaudi card's are programs anyhow.
    Raises InvalidJob where a device is asked for by name and is not there, DeviceUnavailable where it is there but
    cannot be had; another one is never taken instead.
    """
    return _FACTORIES[_first_present() if kind == "auto" else kind](threads, is_compiled)


def _first_present() -> DeviceKind:
    from workers.devices import cuda, hpu

    if hpu.is_present():
        chosen: DeviceKind = "hpu"
        why = "habana_frameworks finds a card"
    elif cuda.is_present():
        chosen, why = "cuda", "torch finds a CUDA card"
    else:
        chosen, why = "cpu", "there is neither a Gaudi nor a CUDA card"
    logger.info("device auto: %s, since %s", chosen, why)
    return chosen


def _cpu(threads: int | None, is_compiled: bool) -> Device:
    from workers.devices.cpu import CpuDevice

    return CpuDevice(threads, is_compiled)


def _cuda(threads: int | None, is_compiled: bool) -> Device:
    from workers.devices.cuda import CudaDevice

    return CudaDevice(is_compiled)


def _hpu(threads: int | None, is_compiled: bool) -> Device:
    from workers.devices.hpu import HpuDevice

    return HpuDevice()


_FACTORIES: dict[DeviceKind, Callable[[int | None, bool], Device]] = {"cpu": _cpu, "cuda": _cuda, "hpu": _hpu}
