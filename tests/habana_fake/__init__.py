"""A stand-in for Gaudi's software: its names and signatures, and what a card would do, on this machine's cores.

`site` is put on sys.path by the fixtures of tests that want it. What it shows is control flow and shapes, and that
graphs replay what was captured; no speed, and no rounding of a card.
"""

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.habana_fake.card import Card, reset
from workers.devices.environment import LAZY_MODE, HpuMode, prepare_environment

SITE = Path(__file__).parent / "site"


def install(monkeypatch: pytest.MonkeyPatch, mode: HpuMode) -> Card:
    """A free card in a process that starts in this mode, for one test."""
    for name in (*_modules(), "torch.hpu"):
        # What is imported meanwhile is forgotten with the test.
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(torch, "hpu", None, raising=False)
    monkeypatch.delattr(torch, "hpu")
    monkeypatch.syspath_prepend(str(SITE))
    environ = {LAZY_MODE: "1" if mode == "lazy" else "0"}
    prepare_environment(environ)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return reset(is_lazy=mode == "lazy")


def _modules() -> list[str]:
    paths = [path.relative_to(SITE).with_suffix("") for path in SITE.rglob("*.py")]
    return [".".join(path.parts).removesuffix(".__init__") for path in paths]
