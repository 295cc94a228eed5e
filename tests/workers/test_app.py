"""`python -m workers`: what it refuses, and what its parent process never loads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workers.__main__ import THREAD_VARIABLES, main, set_threads

ROOT = Path(__file__).parents[2]


def test_the_parent_of_a_worker_process_never_loads_torch() -> None:
    loads = (
        "import sys, workers.__main__, workers.app, workers.tasks; print({'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", loads], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("arguments", "environ", "code", "says"),
    [
        ([], {}, 7, "JOBCTL_REDIS_URL is not set"),
        (["--queues", "shard.cpu"], {}, 2, "--queues: no queue shard.cpu; there are control, shards.auto"),
        (["--session", "no_such_module:f"], {}, 2, "--session no_such_module:f: no module no_such_module"),
        (["--session", "no.such.module:f"], {}, 2, "--session no.such.module:f: no module no.such.module"),
        (["--session", "tests.toy"], {}, 2, "it must be module:function"),
        ([], {"JOBCTL_LEASES": "3"}, 2, "unknown variable JOBCTL_LEASES"),
        ([], {"JOBCTL_REDIS_URL": "http://h"}, 2, "JOBCTL_REDIS_URL: it must begin with redis://"),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: list[str],
    environ: dict[str, str],
    code: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in [name for name in os.environ if name.startswith("JOBCTL_")]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert main(["--session", "tests.toy:load_session", *arguments]) == code
    printed = capfd.readouterr()
    assert (printed.out, printed.err[:7], printed.err.count("\n")) == ("", "error: ", 1)
    assert says in printed.err


@pytest.mark.parametrize("arguments", [["--device", "tpu"], ["--threads", "0"], ["--dev", "cpu"], ["more"]])
def test_an_option_that_is_not_one_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_the_worker_process_inherits_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, "to be restored")
        monkeypatch.delenv(name)
    set_threads(None)
    assert not set(THREAD_VARIABLES) & set(os.environ)
    set_threads(3)
    assert {os.environ[name] for name in THREAD_VARIABLES} == {"3"}
