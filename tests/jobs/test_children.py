"""Child processes: kept up, given up with their log's last words, and never left behind."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from jobs.local import children as children_module
from jobs.local.children import MAX_QUICK_DEATHS, Child, ChildDied, Children
from jobs.local.nodes import NUM_LOGS_KEPT, card_environ, prune_logs
from jobs.local.processes import last_words

ROOT = Path(__file__).parents[2]
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
IGNORES_SIGTERM = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
HAS_A_CHILD = (
    "import subprocess, sys, time; "
    "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid, flush=True); time.sleep(60)"
)
PARENT = """
import sys, time
from pathlib import Path
from jobs.local.processes import spawn
print(spawn([sys.executable, "-c", "import time; time.sleep(60)"], Path(sys.argv[1])).pid, flush=True)
time.sleep(60)
"""


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_child_that_died_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children_module, "FIRST_BACKOFF_SECONDS", 0.01)
    with Children() as children:
        child = Child("one", SLEEP, tmp_path / "log")
        children.start(child)
        assert child.process is not None
        first = child.process
        first.kill()
        first.wait()
        wait_until(lambda: children.keep_up() or child.process not in (None, first))
        assert child.process is not None
        second = child.process.pid
        assert is_running(second)
    assert not is_running(second)


def test_a_child_that_keeps_dying_is_given_up_with_its_logs_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children_module, "FIRST_BACKOFF_SECONDS", 0.001)
    command = [sys.executable, "-c", "raise SystemExit('no such card')"]
    log = tmp_path / "logs" / "one.log"
    with Children() as children, pytest.raises(ChildDied) as error:
        children.start(Child("worker 0", command, log))
        wait_until(children.keep_up)
    assert str(error.value) == (
        f"worker 0 ended {MAX_QUICK_DEATHS + 1} times in a row (exit code 1); its log is {log}: no such card"
    )
    assert log.read_text().count("no such card") == MAX_QUICK_DEATHS + 1


def test_a_long_life_forgives_earlier_deaths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children_module, "FIRST_BACKOFF_SECONDS", 0.0)
    monkeypatch.setattr(children_module, "QUICK_DEATH_SECONDS", 0.0)
    child = Child("one", [sys.executable, "-c", ""], tmp_path / "log")
    with Children() as children:
        children.start(child)
        for _ in range(MAX_QUICK_DEATHS + 2):
            assert child.process is not None
            child.process.wait()
            children.keep_up()
            assert child.num_quick_deaths == 1
            children.keep_up()


def test_a_child_that_ignores_sigterm_is_killed_when_the_grace_is_over(tmp_path: Path) -> None:
    children, log = Children(), tmp_path / "log"
    child = Child("one", [sys.executable, "-c", IGNORES_SIGTERM], log)
    children.start(child)
    wait_until(lambda: log.read_text() == "ready\n")
    process = child.process
    assert process is not None
    children.stop(grace_seconds=0.2)
    assert process.poll() == -9


def test_stopping_a_child_ends_its_own_children_too(tmp_path: Path) -> None:
    children, log = Children(), tmp_path / "log"
    children.start(Child("one", [sys.executable, "-c", HAS_A_CHILD], log))
    wait_until(lambda: log.read_text().endswith("\n"))
    grandchild = int(log.read_text())
    assert is_running(grandchild)
    children.stop()
    wait_until(lambda: not is_running(grandchild))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no parent-death signal")
def test_a_killed_parent_takes_its_children_with_it(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert is_running(child)
    parent.kill()
    parent.communicate()
    wait_until(lambda: not is_running(child))


@pytest.mark.parametrize(
    ("text", "words"),
    [("", ""), ("\n\n", ""), ("one\ntwo\n\n", ": two"), ("x" * 9000, ": " + "x" * 300)],
)
def test_last_words_are_the_last_line_that_says_something(text: str, words: str, tmp_path: Path) -> None:
    assert last_words(tmp_path / "absent") == ""
    (tmp_path / "log").write_text(text)
    assert last_words(tmp_path / "log") == words


def test_each_of_several_workers_is_pinned_to_its_own_card() -> None:
    assert card_environ("cuda", 1, 2, {}) == {"CUDA_VISIBLE_DEVICES": "1"}
    assert card_environ("cuda", 1, 2, {"CUDA_VISIBLE_DEVICES": "4,6"}) == {"CUDA_VISIBLE_DEVICES": "6"}
    assert card_environ("hpu", 3, 8, {}) == {"HLS_MODULE_ID": "3", "HABANA_VISIBLE_MODULES": "3"}
    assert card_environ("cuda", 0, 1, {"CUDA_VISIBLE_DEVICES": "4,6"}) == {}
    assert card_environ("cpu", 1, 2, {}) == {}


def test_old_worker_logs_are_removed_and_others_kept(tmp_path: Path) -> None:
    for number in range(NUM_LOGS_KEPT + 3):
        (tmp_path / f"worker-{number}-0.log").touch()
    (tmp_path / "broker.log").touch()
    prune_logs(tmp_path)
    assert len(list(tmp_path.glob("worker-*.log"))) == NUM_LOGS_KEPT
    assert (tmp_path / "broker.log").exists()
