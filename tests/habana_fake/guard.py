"""The one C++ part of a device that torch cannot do without, even to index a tensor: which device is current.

torch knows the device type hpu and finds this part in the card's software; here it is one that does nothing.
"""

import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch

_SOURCE = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace { C10_REGISTER_GUARD_IMPL(HPU, c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::HPU>) }
"""


@cache
def install_guard() -> None:
    """For the rest of this process. Takes some seconds, and a C++ compiler."""
    root = Path(torch.__file__).parent
    abi = int(torch.compiled_with_cxx11_abi())
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "guard.cpp", Path(folder) / "guard.so"
        source.write_text(_SOURCE)
        flags = ["-O0", "-std=c++20", "-shared", "-fPIC", f"-D_GLIBCXX_USE_CXX11_ABI={abi}"]
        paths = [f"-I{root / 'include'}", str(source), f"-L{root / 'lib'}", "-lc10", "-o", str(library)]
        subprocess.run(["c++", *flags, *paths], check=True)
        torch.ops.load_library(str(library))
