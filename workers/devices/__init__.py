"""Devices by name. Each is imported when it is asked for, so that none needs what another is built on."""

import logging
from collections.abc import Callable

from schemas.job import DeviceKind
from workers.devices.base import Device

logger = logging.getLogger(__name__)


def get_device(kind: DeviceKind, threads: int | None = None) -> Device:
    """The device that a job asks for; `auto` is the first of hpu, cuda and cpu that is there.

    threads: how many cores a CPU device computes with; None leaves torch's own choice.
    Raises InvalidJob where a device is asked for by name and is not there; another one is never taken instead.
    """
    return _FACTORIES[_first_present() if kind == "auto" else kind](threads)


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


def _cpu(threads: int | None) -> Device:
    from workers.devices.cpu import CpuDevice

    return CpuDevice(threads)


def _cuda(threads: int | None) -> Device:
    from workers.devices.cuda import CudaDevice

    return CudaDevice()


def _hpu(threads: int | None) -> Device:
    from workers.devices.hpu import HpuDevice

    return HpuDevice()


_FACTORIES: dict[DeviceKind, Callable[[int | None], Device]] = {"cpu": _cpu, "cuda": _cuda, "hpu": _hpu}
