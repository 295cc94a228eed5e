"""The end of a worker process: on SIGTERM at a safe place, and with its parent."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from workers.stopping import StopRequest, WorkerStopping


def test_sigterm_is_noticed_where_it_is_asked_for_and_not_before() -> None:
    stop, before = StopRequest(), signal.getsignal(signal.SIGTERM)
    with stop.on_sigterm():
        stop.check()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        with pytest.raises(WorkerStopping):
            stop.check()
    assert signal.getsignal(signal.SIGTERM) is before


CHILD = """
import os, time
from workers.stopping import end_with_parent
end_with_parent(os.getppid())
print("up", flush=True)
time.sleep(60)
"""
PARENT = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {CHILD!r}]); time.sleep(60)"


def test_a_process_ends_with_its_parent_without_a_signal_from_the_system() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout as output:
        assert output.readline() == "up\n"
        (child,) = psutil.Process(parent.pid).children()
        time.sleep(0.2)
        assert child.is_running()
        parent.kill()
        child.wait(10)
