"""jobctl explains itself, and quickly: what `--help` loads and shows."""

import json
import subprocess
import sys

import click
import pytest

from jobs.cli import VERBS, group, jobctl
from jobs.cli.options import HELP, option_name
from schemas.job import JobSpec

HEAVY = ("torch", "transformers", "celery", "kombu", "redis", "pyarrow", "pydantic", "rich", "huggingface_hub")
NOUNS = ("schedule", "healthcheck", "dlq")


def commands() -> list[tuple[str, ...]]:
    """Every command's words."""
    words: list[tuple[str, ...]] = []
    for verb in VERBS:
        command = group.get_command(click.Context(group), verb)
        words.append((verb,))
        if isinstance(command, click.Group):
            words += [(verb, name) for name in command.commands]
    return words


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, json; from jobs.cli import jobctl; code = jobctl(['--help']); "
        f"print(json.dumps([code, [name for name in {HEAVY!r} if name in sys.modules]]), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stderr) == [0, []]
    assert "run " in done.stdout and "submit " in done.stdout


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_has_help_for_each_option(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert jobctl([*words, "--help"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert f"Usage: jobctl {' '.join(words)}" in shown.out
    command: click.Command = group
    for word in words:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    assert command.help
    undocumented = [p.name for p in command.params if isinstance(p, click.Option) and not (p.help or p.hidden)]
    assert undocumented == []


def test_the_groups_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert jobctl(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[lines.index("Commands:") + 1 :] if line[:3].strip()] == list(VERBS)


def test_without_a_verb_jobctl_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert jobctl([]) == 0
    without = capsys.readouterr()
    assert jobctl(["--help"]) == 0
    assert capsys.readouterr() == without
    assert without.err == ""


@pytest.mark.parametrize("noun", NOUNS)
def test_a_noun_without_a_verb_is_a_usage_error(noun: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert jobctl([noun]) == 2
    assert capsys.readouterr() == ("", f"jobctl: Missing command. See jobctl {noun} --help.\n")


@pytest.mark.parametrize("verb", ["run", "submit"])
def test_submit_and_run_have_an_option_for_each_key_of_a_spec(verb: str) -> None:
    command = group.get_command(click.Context(group), verb)
    assert command is not None
    names = {p.name: p.opts[0] for p in command.params}
    for key in JobSpec.model_fields:
        assert names[key] == (key if key == "input" else option_name(key))
    assert HELP.keys() == JobSpec.model_fields.keys() - {"input"}


def test_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        expected = version("specbatch")
    except PackageNotFoundError:
        pytest.skip("specbatch is not installed here")
    assert jobctl(["--version"]) == 0
    assert capsys.readouterr().out == f"jobctl {expected}\n"
