"""The worker side of Celery: one node, the parent of one worker process. It takes messages and never imports torch."""

import logging
import os
import signal
import socket
from collections.abc import Sequence
from typing import Any

from celery import Celery, signals

from jobs.control.queue import make_app
from jobs.control.store import Store
from jobs.settings import Settings
from schemas.errors import QueueUnavailable
from workers.context import NODE_PID_KEY, OPTIONS_KEY, WorkerOptions, broker_url
from workers.heartbeat import Heartbeat
from workers.intake import CheckedAMQP, message_refused

log = logging.getLogger(__name__)


def run_node(options: WorkerOptions, queues: Sequence[str], settings: Settings) -> int:
    """Runs until it is told to stop; returns the exit code. Raises QueueUnavailable where no broker is named.

    SIGTERM and SIGINT end it soon: the running shard saves its finished rows and goes back.
    """
    url = broker_url(settings)
    worker = make_node_app(options, settings, url).Worker(
        hostname=f"{options.name}@{socket.gethostname()}",
        queues=list(queues),
        concurrency=1,
        pool="prefork",
        loglevel="INFO",
        # Nodes need not know each other.
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    store = Store(settings, url)
    signals.worker_ready.connect(_stop_soon_on_signals)
    keep_refused_messages(store)
    with Heartbeat(store, options, queues):
        worker.start()
    return int(worker.exitcode or 0)


def make_node_app(options: WorkerOptions, settings: Settings, url: str) -> Celery:
    """The app as the worker process gets it too: pickled, with its configuration."""
    app = make_app(settings, url)
    app.amqp_cls = CheckedAMQP
    app.conf.update(
        {
            "include": ["workers.tasks"],
            OPTIONS_KEY: options.model_dump(mode="json"),
            NODE_PID_KEY: os.getpid(),
        }
    )
    app.set_current()
    return app


def _stop_soon_on_signals(**_: Any) -> None:
    """Celery ends at once on SIGQUIT: it sends the worker process SIGTERM, waits for it, and requeues its message.

    On SIGTERM it would first wait for the whole shard, and with REMAP_SIGTERM its worker process is killed where it
    stands. So the other signals get SIGQUIT's handler.
    """
    stop_soon = signal.getsignal(signal.SIGQUIT)
    signal.signal(signal.SIGTERM, stop_soon)
    signal.signal(signal.SIGINT, stop_soon)


def keep_refused_messages(store: Store) -> None:
    """Messages that no task can do are put with the dead letters."""

    def keep(body: str, reason: str, **_: Any) -> None:
        try:
            store.refuse_message(body, reason)
        except QueueUnavailable as error:
            log.warning("a refused message could not be kept: %s", error)

    message_refused.connect(keep, weak=False)
