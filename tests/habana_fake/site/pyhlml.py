"""habana-pyhlml: what is asked of it about the cards of a machine, with the types that it answers with."""

from types import SimpleNamespace

NUM_CARDS = 8
_MODULES = (3, 1, 0, 2, 7, 5, 4, 6)  # an index is not a module


class HLML_TEMP_SENS:
    HLML_TEMPERATURE_ON_AIP = 0
    HLML_TEMPERATURE_ON_BOARD = 1


class HLMLError(Exception):
    pass


def hlmlInit() -> None:
    return


def hlmlShutdown() -> None:
    return


def hlmlDeviceGetCount() -> int:
    return NUM_CARDS


def hlmlDeviceGetHandleByIndex(index: int) -> int:
    if not 0 <= index < NUM_CARDS:
        raise HLMLError(f"no card {index}")
    return index


def hlmlDeviceGetModuleID(device: int) -> int:
    return _MODULES[device]


def hlmlDeviceGetName(device: int) -> bytes:
    return b"HL-325L"


def hlmlDeviceGetSerial(device: int) -> bytes:
    return b"AN0000000%d" % device


def hlmlDeviceGetUUID(device: int) -> bytes:
    return b"01P0-HL3000A0-18-P64T21-17-07-0%d" % device


def hlmlDeviceGetMemoryInfo(device: int) -> SimpleNamespace:
    return SimpleNamespace(free=127 << 30, total=128 << 30, used=1 << 30)


def hlmlDeviceGetUtilizationRates(device: int) -> SimpleNamespace:
    return SimpleNamespace(aip=0)


def hlmlDeviceGetTemperature(device: int, sensor_type: int) -> int:
    return 40
