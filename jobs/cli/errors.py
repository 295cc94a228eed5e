"""The edge where exceptions become one line on stderr and an exit code."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from jobs.cli.interrupts import exit_code_of_interrupt
from schemas.errors import SpecbatchError

FAILURE, USAGE, CTRL_C = 1, 2, 130
NUM_MESSAGE_CHARS = 2000  # what is wrong may quote what was given, however long


@dataclass
class Invocation:
    """What the options before the verb decide."""

    debug: bool = False

    def set_debug(self, debug: bool) -> None:
        # Not at the top: --help needs none of it.
        import logging

        self.debug = debug
        logging.basicConfig(
            stream=sys.stderr,
            level=logging.DEBUG if debug else logging.ERROR,
            format="%(asctime)s %(name)s %(levelname)s %(message)s",
        )


def run_translating_errors(call: Callable[[], Any], invocation: Invocation) -> int:
    """`call`'s exit code; every exception as `jobctl: <one line>` on stderr, with its traceback under --debug."""
    try:
        result = call()
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except BrokenPipeError:
        return _leave_broken_pipe()
    except KeyboardInterrupt as error:
        return _report("interrupted", exit_code_of_interrupt(error), invocation)
    except click.Abort:
        # click's own word for a Ctrl-C that it caught
        return _report("interrupted", CTRL_C, invocation)
    except click.UsageError as error:
        return _report(_usage_line(error), USAGE, invocation)
    except click.ClickException as error:
        return _report(error.format_message(), error.exit_code, invocation)
    except SpecbatchError as error:
        return _report(str(error), error.exit_code, invocation)
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        return _report(f"{named}{error.strerror or error}", FAILURE, invocation)
    except Exception as error:
        hint = "" if invocation.debug else " (run with --debug to see where)"
        return _report(f"{type(error).__name__}: {error}{hint}", FAILURE, invocation)


def _report(message: str, exit_code: int, invocation: Invocation) -> int:
    if invocation.debug:
        import traceback

        traceback.print_exc(file=sys.stderr)
    line = " ".join(message.split())
    print(f"jobctl: {line if len(line) <= NUM_MESSAGE_CHARS else line[:NUM_MESSAGE_CHARS] + '…'}", file=sys.stderr)
    return exit_code


def _usage_line(error: click.UsageError) -> str:
    verb = error.ctx.command_path if error.ctx is not None else "jobctl"
    return f"{error.format_message()} See {verb} --help."


def _leave_broken_pipe() -> int:
    """The reader of our stdout has gone (`jobctl list | head`): end quietly, with the exit code that click gives."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILURE
