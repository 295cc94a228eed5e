"""jobctl: a lazy group of verbs. A verb's module, and all it needs, is imported when that verb runs."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from jobs.cli.errors import Invocation, run_translating_errors
from jobs.texts import is_utf8
from schemas.errors import InvalidJob

VERBS: dict[str, tuple[str, str]] = {
    "run": ("jobs.cli.run", "Run a job on this machine from start to end: broker, workers, progress, summary."),
    "up": ("jobs.cli.up", "Keep a broker, workers and beat running in the foreground; submit to it elsewhere."),
    "worker": ("jobs.cli.worker", "Run one worker against the broker that JOBCTL_REDIS_URL names."),
    "submit": ("jobs.cli.submit", "Plan and queue a job; prints its id."),
    "buckets": ("jobs.cli.buckets", "Show the shapes a job would run in on a card: count, padding, memory."),
    "status": ("jobs.cli.status", "Show one job: state, rows, shards, errors."),
    "list": ("jobs.cli.listing", "List all jobs."),
    "wait": ("jobs.cli.wait", "Wait until a job ends; exits with its code."),
    "results": ("jobs.cli.results", "Show the first rows of a job's output, or where it is."),
    "cancel": ("jobs.cli.cancel", "Stop a job; finished shards are kept."),
    "resume": ("jobs.cli.resume", "Let a job go on from its output directory, whatever the broker has forgotten."),
    "retry": ("jobs.cli.retry", "Generate a job's failed rows again, into the same output."),
    "reconcile": ("jobs.cli.reconcile", "Look at a job now: enqueue what is missing, or finish it."),
    "dlq": ("jobs.cli.dlq", "Dead shards and refused messages: list, show, replay, purge."),
    "verify": ("jobs.cli.verify", "Re-read a job's output against its receipts and its input."),
    "gc": ("jobs.cli.gc", "Remove what ended attempts left in an output directory."),
    "schedule": ("jobs.cli.schedule", "Submit a job at the times of a cron line: add, list, remove, run-now."),
    "beat": ("jobs.cli.beat", "Run the process that fires schedules and reconciles jobs."),
    "doctor": ("jobs.cli.doctor", "Check broker, workers, beat and directories; says what to do."),
    "healthcheck": ("jobs.cli.healthcheck", "Say whether a worker or beat is alive; exits 0 or 1."),
}


class LazyGroup(click.Group):
    """Knows its verbs' names and one-line helps without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = import_module(VERBS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"jobctl {version('specbatch')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--debug", is_flag=True, help="Show tracebacks and the logs of what runs in this process.")
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Show the version."
)
@click.pass_obj
def group(invocation: Invocation, debug: bool) -> None:
    """Offline LLM generation for Parquet files of prompts.

    \b
    jobctl run prompts.parquet --model HuggingFaceTB/SmolLM2-135M-Instruct
    jobctl results prompts-completions

    Data goes to stdout, messages and progress to stderr. Exit codes: 0 ok, 1 failure, 2 usage, 3 not found,
    4 finished with row errors, 5 cancelled, 6 timeout, 7 no broker; 130 and 143 when Ctrl-C or SIGTERM ended it.
    """
    invocation.set_debug(debug)


def check_readable(arguments: Sequence[str]) -> None:
    """Raises InvalidJob for a path whose name is not UTF-8: neither JSON nor Parquet could hold it."""
    for argument in arguments:
        if not is_utf8(argument):
            raise InvalidJob(f"{argument!a} is not UTF-8 text; rename the file or directory")


def jobctl(arguments: Sequence[str]) -> int:
    """Runs jobctl with `arguments` and returns its exit code; without any it shows its help."""
    invocation = Invocation()

    def call() -> Any:
        check_readable(arguments)
        return group.main(list(arguments) or ["--help"], prog_name="jobctl", standalone_mode=False, obj=invocation)

    return run_translating_errors(call, invocation)


def main() -> NoReturn:
    sys.exit(jobctl(sys.argv[1:]))
