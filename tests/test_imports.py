"""The import rule: schemas <- jobs <- workers, and torch in the engine and devices alone."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers")
MAY_IMPORT = {"schemas": {"schemas"}, "jobs": {"schemas", "jobs"}, "workers": {"schemas", "jobs", "workers"}}
NEEDS_TORCH = ("workers/engine/", "workers/devices/")
BEFORE_TORCH = "workers.devices.environment"  # what a card's software reads is set before torch is imported
# Modules whose sense is to load torch: were they to stop, the list above would be out of date.
LOADS_TORCH = ("workers.engine.engine", "workers.devices.cpu")


def module_name(path: Path) -> str:
    name = str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
    return name.removesuffix(".__init__")


def sources(package: str) -> list[Path]:
    found = sorted((ROOT / package).rglob("*.py"))
    assert found
    return found


def without_torch() -> list[str]:
    """Every module but those of the engine and devices, and the mains, which run when imported."""
    paths = [path for package in MAY_IMPORT for path in sources(package)]
    free = [p for p in paths if not str(p.relative_to(ROOT)).startswith(NEEDS_TORCH) and p.stem != "__main__"]
    return [*(module_name(path) for path in free), BEFORE_TORCH]


def loaded_after_importing(modules: list[str], watched: tuple[str, ...]) -> list[str]:
    code = (
        "import sys, json, importlib; [importlib.import_module(name) for name in json.loads(sys.argv[1])]; "
        "print(json.dumps([name for name in json.loads(sys.argv[2]) if name in sys.modules]))"
    )
    arguments = [sys.executable, "-c", code, json.dumps(modules), json.dumps(watched)]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def imported(path: Path) -> Iterator[str]:
    """Top-level packages that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield str(node.module).split(".")[0]


def test_client_control_plane_and_worker_parent_never_load_torch() -> None:
    modules = without_torch()
    assert {"jobs.cli.run", "jobs.submit", "workers.app", "workers.shard", "workers.tasks"} <= set(modules)
    assert loaded_after_importing(modules, HEAVY) == []


@pytest.mark.skipif(find_spec("torch") is None, reason="the client's installation has no torch")
@pytest.mark.parametrize("module", LOADS_TORCH)
def test_the_engine_does_load_torch(module: str) -> None:
    assert "torch" in loaded_after_importing([module], HEAVY)


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_imports_go_one_way(package: str) -> None:
    ours = set(MAY_IMPORT)
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(package)
        for name in imported(path)
        if name in ours and name not in MAY_IMPORT[package]
    ]
    assert wrong == []


def test_schemas_do_no_io() -> None:
    used = {name for path in sources("schemas") for name in imported(path)}
    assert used & {"os", "subprocess", "socket", "redis", "celery", "fsspec"} == set()


@pytest.mark.parametrize("package", ["jobs", "workers"])
def test_the_environment_is_read_in_one_file(package: str) -> None:
    """workers/__main__.py writes to it for its own child processes; drivers of devices are told things there too."""
    readers = [
        str(path.relative_to(ROOT))
        for path in sources(package)
        if any(
            isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
            for node in ast.walk(ast.parse(path.read_text()))
        )
    ]
    allowed = {"jobs/settings.py", "workers/__main__.py", "workers/devices/environment.py"}
    assert set(readers) <= allowed
