"""The worker side of Celery: its tasks, which only decode, call, and say what becomes of the message.

A task that returns acknowledges its message. Whether the shard is tried again is the reconciler's affair: it sees
a shard without a receipt and without a lease.
"""

import json
import logging
from functools import lru_cache
from typing import Any

from celery import Task, current_app, shared_task
from celery.signals import worker_process_init

from jobs.control.envelope import RUN_SHARD, SUBMIT_SCHEDULED
from jobs.schedules.schedule import run_tick
from jobs.schedules.spec import NAME
from jobs.schedules.ticks import parse_tick
from schemas.errors import (
    CommitConflict,
    InvalidJob,
    JobCancelled,
    LeaseLost,
    MessageRefused,
    NotFound,
    QueueUnavailable,
    SpecbatchError,
)
from schemas.message import ShardMessage
from workers.context import NODE_PID_KEY, OPTIONS_KEY, WorkerContext, WorkerOptions, broker_url, make_context
from workers.shard import run_shard
from workers.stopping import WorkerStopping, end_with_parent

log = logging.getLogger(__name__)


@shared_task(name=RUN_SHARD, bind=True)  # type: ignore[untyped-decorator]
def run_shard_task(self: Task, *arguments: Any, **options: Any) -> None:
    """The message is one text, a ShardMessage. Anything else is refused and kept for people to look at."""
    context = context_of(self)
    with context.stop.on_sigterm():
        handle_message([*arguments, *options.values()], context)


def handle_message(arguments: list[Any], context: WorkerContext) -> None:
    """Raises SystemExit where this process must not do another shard: asked to end, or an error nobody foresaw.

    After such an error a device may be unusable; Celery starts a new process.
    """
    try:
        do_message(decode(arguments), context)
    except MessageRefused as error:
        log.warning("refused a message: %s", error)
        context.store.refuse_message(json.dumps(arguments), str(error))
    except QueueUnavailable as error:
        log.warning("%s; what was not done will be enqueued again", error)


def decode(arguments: list[Any]) -> ShardMessage:
    """Raises MessageRefused."""
    if len(arguments) != 1 or not isinstance(arguments[0], str):
        raise MessageRefused("a shard's message is one text")
    try:
        return ShardMessage.from_json(arguments[0])
    except InvalidJob as error:
        raise MessageRefused(str(error)) from error


def do_message(message: ShardMessage, context: WorkerContext) -> None:
    """What an attempt's ending means to the job and the process; the lease has said what it means to the shard."""
    shard = f"shard {message.shard_index} of {message.job_id}"
    try:
        run_shard(message, context)
    except (CommitConflict, LeaseLost, JobCancelled, NotFound) as error:
        log.info("%s: %s", shard, error)
    except WorkerStopping as stopping:
        raise SystemExit(0) from stopping
    except InvalidJob as error:
        log.warning("%s cannot be run: %s", message.job_id, error)
        context.store.fail_job(message.job_id, str(error))
    except (QueueUnavailable, MessageRefused):
        raise
    except SpecbatchError as error:
        log.warning("%s: %s", shard, error)
    except Exception as error:
        log.exception("%s: this worker process starts anew", shard)
        raise SystemExit(1) from error


@shared_task(name=SUBMIT_SCHEDULED, bind=True)  # type: ignore[untyped-decorator]
def submit_scheduled_task(self: Task, *arguments: Any, **options: Any) -> None:
    """The message is a schedule's name and one of its ticks (ISO 8601). Twice makes the same job."""
    handle_tick([*arguments, *options.values()], context_of(self))


def handle_tick(arguments: list[Any], context: WorkerContext) -> None:
    """Submits what the schedule asks for at the tick."""
    try:
        name, tick = decode_tick(arguments)
        run_tick(name, tick, context.settings, broker_url(context.settings))
    except MessageRefused as error:
        log.warning("refused a message: %s", error)
        context.store.refuse_message(json.dumps(arguments), str(error))
    except SpecbatchError as error:
        log.warning("a schedule's tick: %s", error)


def decode_tick(arguments: list[Any]) -> tuple[str, str]:
    """Raises MessageRefused."""
    match arguments:
        case [str(name), str(tick)] if NAME.fullmatch(name):
            try:
                parse_tick(tick)
            except InvalidJob as error:
                raise MessageRefused(str(error)) from error
            return name, tick
    raise MessageRefused("a tick's message is a schedule's name and a time")


def context_of(task: Task) -> WorkerContext:
    return _context(WorkerOptions.from_mapping(task.app.conf[OPTIONS_KEY]))


@lru_cache(maxsize=1)
def _context(options: WorkerOptions) -> WorkerContext:
    return make_context(options)


@worker_process_init.connect  # type: ignore[untyped-decorator]
def _on_process_start(**_: Any) -> None:
    end_with_parent(current_app.conf[NODE_PID_KEY])
