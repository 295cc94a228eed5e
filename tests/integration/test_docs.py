"""The README is true: its commands run as they stand there, in order, and what it points at exists."""

import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.tiny_folder import make_folder
from tests.integration.conftest import ROOT, wait_until
from tests.integration.terminal import Running, Terminal

README = (ROOT / "README.md").read_text()
COMMANDS = [
    line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines() if line.strip()
]
SAYS_SOMETHING = re.compile(r"jobctl (results|status|list)")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A reader's folder: the examples, what the README's snippet writes, and a tiny model in the demo model's place."""
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples/prompts.parquet", tmp_path / "examples")
    make_folder(tmp_path / ".models/SmolLM2-135M-Instruct", max_position_embeddings=8192)
    (snippet,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path, check=True)
    return tmp_path


@pytest.fixture
def terminal(folder: Path) -> Iterator[Terminal]:
    opened = Terminal(folder / "data", cwd=folder)
    yield opened
    opened.close()


def test_the_first_command_is_within_fifteen_lines() -> None:
    first = next(i for i, line in enumerate(README.splitlines(), start=1) if line.startswith("make demo"))
    assert first <= 15


def test_every_make_command_is_a_target_that_ci_runs() -> None:
    makefile, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci/run").read_text()
    for command in [line for line in COMMANDS if line.startswith("make ")]:
        assert f"\n{command.split()[1]}:" in makefile
        assert f"\n{command}\n" in ci
    named = set(re.findall(r"`make ([a-z-]+)`", README))
    assert named and all(f"\n{target}:" in makefile for target in named)


def test_the_demo_runs_the_command_that_the_readme_shows() -> None:
    shown = next(line for line in COMMANDS if line.startswith("jobctl run examples/"))
    recipe = (ROOT / "Makefile").read_text()
    for name, value in re.findall(r"^(\w+) := (.*)$", recipe, re.MULTILINE):
        recipe = recipe.replace(f"$({name})", value)
    assert shown in recipe


@pytest.mark.services
def test_every_jobctl_command_runs_as_it_stands(terminal: Terminal) -> None:
    started: list[Running] = []
    for command in [line for line in COMMANDS if line.startswith("jobctl ")]:
        arguments = shlex.split(command)[1:]
        if arguments[0] == "up":
            started.append(start_up(terminal, arguments))
        else:
            done = terminal.run(*arguments, seconds=180)
            assert done.out.strip() or not SAYS_SOMETHING.match(command), command
    (up,) = started
    up.process.send_signal(signal.SIGTERM)
    assert up.end() == 143


def start_up(terminal: Terminal, arguments: list[str]) -> Running:
    """`jobctl up`, once it says how to submit."""
    up = terminal.start(*arguments)
    wait_until(lambda: "jobctl submit" in up.err, 60, "up says how to submit")
    return up


def test_paths_that_the_readme_names_exist() -> None:
    paths = re.findall(r"`((?:schemas|jobs|workers)/[a-z_/]*(?:\.py)?)`", README)
    assert len(paths) >= 8
    assert [path for path in paths if not (ROOT / path).exists()] == []
