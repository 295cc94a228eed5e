"""SIGTERM and a closed terminal end a verb the way Ctrl-C does: through its `with` and `finally` blocks."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asked this process to end."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"ended by {signal.Signals(signum).name}")
        self.signum = signum


@contextmanager
def interruptible() -> Iterator[None]:
    """Raises Interrupted in the main thread where one of SIGNALS comes, unless it is ignored (nohup)."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise Interrupted(signum)

    heeded = [signum for signum in SIGNALS if signal.getsignal(signum) != signal.SIG_IGN]
    before = {signum: signal.signal(signum, interrupt) for signum in heeded}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def exit_code_of_interrupt(error: KeyboardInterrupt) -> int:
    """128 + the signal's number, as shells have it: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + (error.signum if isinstance(error, Interrupted) else signal.SIGINT)
