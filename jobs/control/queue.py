"""The client side of Celery: the app's settings, publishing, and what is on its way. Kombu's keys stay in here."""

import json
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from celery import Celery
from kombu import Exchange
from kombu import Queue as KombuQueue

from jobs.control.connection import ANSWER_SECONDS, HEALTH_CHECK_SECONDS, connect, translated
from jobs.control.envelope import RUN_SHARD, Envelope
from jobs.settings import Settings
from schemas.errors import MessageRefused
from schemas.job import DeviceKind, DeviceKinds
from schemas.message import ShardMessage

CONTROL_QUEUE = "control"
SHARD_TASK_ID = re.compile(r"(?P<job_id>[^/]+)/(?P<shard>[0-9]{1,9})/(?P<delivery>[0-9]{1,18})")

CHILD_START_SECONDS = 120.0
PRIORITY_STEPS = [0]


def shard_queue(device: DeviceKind) -> str:
    return f"shards.{device}"


def queues_of(device: DeviceKind) -> list[str]:
    """What a worker on `device` consumes: schedules first, then its own device's shards, then anybody's."""
    return list(dict.fromkeys([CONTROL_QUEUE, shard_queue(device), shard_queue("auto")]))


QUEUES = [CONTROL_QUEUE, *(shard_queue(device) for device in DeviceKinds)]


def make_app(settings: Settings, redis_url: str) -> Celery:
    """The Celery app of clients and workers. It connects lazily; the same settings on both sides."""
    app, url = Celery("specbatch", set_as_current=False), celery_url(redis_url)
    app.conf.update(
        # Both, since CELERY_BROKER_URL in somebody's environment would outrank a broker_url.
        broker_read_url=url,
        broker_write_url=url,
        # Whoever can write to the broker must not be able to run code: no pickle.
        accept_content=["json"],
        task_serializer="json",
        # A message is done when its task is, so that a worker that dies leaves it behind.
        task_acks_late=True,
        # One device, one shard: what another worker could start must not wait here.
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        # The receipt is the result; a result backend would be a second truth.
        task_ignore_result=True,
        # Nobody may see a running shard's message again because the shard is long.
        # All three places: the shortest one on a broker wins.
        visibility_timeout=settings.visibility_timeout_seconds,
        result_backend_transport_options={"visibility_timeout": settings.visibility_timeout_seconds},
        broker_transport_options=_transport_options(settings),
        # Accelerators do not survive a fork.
        worker_pool_start_method="spawn",
        worker_proc_alive_timeout=CHILD_START_SECONDS,
        # A fixed list: a queue that nobody consumes is a typing error, not a new queue.
        task_queues=[KombuQueue(name, Exchange(name), routing_key=name) for name in QUEUES],
        task_default_queue=CONTROL_QUEUE,
        task_create_missing_queues=False,
        # Once more, for a connection that was closed while it was idle; the rest is the caller's to decide.
        task_publish_retry_policy={"max_retries": 1, "interval_start": 0},
        # A worker outlives its broker's restarts, however long they take.
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # A lost connection does not end a running shard: its lease and its receipt decide.
        worker_cancel_long_running_tasks_on_connection_loss=False,
        # Cancelling is a flag in the store, health a heartbeat there: nobody speaks to workers over pub/sub.
        worker_enable_remote_control=False,
    )
    return app


def _transport_options(settings: Settings) -> dict[str, Any]:
    return {
        "visibility_timeout": settings.visibility_timeout_seconds,
        "global_keyprefix": settings.key_prefix,
        "priority_steps": PRIORITY_STEPS,
        # In the order of `queues_of`: schedules are not to wait behind shards.
        "queue_order_strategy": "priority",
        # A connection that a firewall dropped silently must not hold a worker for ever.
        "socket_timeout": ANSWER_SECONDS,
        "socket_connect_timeout": ANSWER_SECONDS,
        "socket_keepalive": True,
        "health_check_interval": HEALTH_CHECK_SECONDS,
    }


def celery_url(redis_url: str) -> str:
    """Celery's spelling of the same server: it knows unix:// as redis+socket://, and `db` as `virtual_host`.

    It checks no certificate unless it is told to.
    """
    parts = urlsplit(redis_url)
    if parts.scheme == "rediss":
        return f"{redis_url}{'&' if parts.query else '?'}ssl_cert_reqs=required&ssl_check_hostname=true"
    if parts.scheme == "redis":
        return redis_url
    database = dict(parse_qsl(parts.query)).get("db")
    query = f"?virtual_host={database}" if database else ""
    return f"redis+socket://{parts.netloc}{parts.path}{query}"


@dataclass(frozen=True, slots=True)
class LiveDelivery:
    """A message that is somewhere between its publisher and its task.

    received_seconds: how long a worker has had it unacknowledged; None while it waits in its queue.
    """

    job_id: str
    shard_index: int
    delivery: int
    received_seconds: float | None


class Queue:
    """Publishes shard messages and sees where they are. Connects when first used."""

    def __init__(self, settings: Settings, redis_url: str) -> None:
        self.app = make_app(settings, redis_url)
        self._prefix = settings.key_prefix
        self._url = redis_url
        self._redis = connect(redis_url)

    def enqueue_shards(self, messages: Iterable[ShardMessage], device: DeviceKind) -> int:
        """Publishes in order and counts. Raises QueueUnavailable; what went out before stays out."""
        num_sent = 0
        with translated(self._url), self.app.producer_pool.acquire(block=True) as producer:
            for message in messages:
                self.app.send_task(
                    RUN_SHARD,
                    args=[message.to_json()],
                    task_id=f"{message.job_id}/{message.shard_index}/{message.delivery}",
                    queue=shard_queue(device),
                    producer=producer,
                )
                num_sent += 1
        return num_sent

    def enqueue_shard(self, message: ShardMessage, device: DeviceKind) -> None:
        """Raises QueueUnavailable."""
        self.enqueue_shards([message], device)

    def live_deliveries(self) -> list[LiveDelivery]:
        """Every shard message in a queue or with a worker, as of about now. Raises QueueUnavailable."""
        with translated(self._url):
            pipe = self._redis.pipeline(transaction=True)
            for name in QUEUES:
                pipe.lrange(self._prefix + name, 0, -1)
            pipe.hgetall(self._prefix + "unacked")
            pipe.zrange(self._prefix + "unacked_index", 0, -1, withscores=True)
            *waiting, received, received_at = pipe.execute()
        now, since = time.time(), dict(received_at)
        return [
            *(live for queue in waiting for raw in queue for live in _parse(raw, None)),
            *(
                live
                for tag, raw in received.items()
                # A message is in the hash and the index or in neither, but for a moment while it is acknowledged.
                for live in _parse(_unacked_message(raw), now - since.get(tag, now))
            ),
        ]

    def close(self) -> None:
        self.app.close()
        self._redis.close()


def _parse(raw: str, received_seconds: float | None) -> Iterator[LiveDelivery]:
    """Nothing for what is not a shard's message: others may use the queues of this server."""
    try:
        envelope = Envelope.parse(raw)
    except MessageRefused:
        return
    names = SHARD_TASK_ID.fullmatch(envelope.task_id)
    if envelope.task == RUN_SHARD and names:
        yield LiveDelivery(names["job_id"], int(names["shard"]), int(names["delivery"]), received_seconds)


def _unacked_message(raw: str) -> str:
    """The message in kombu's [message, exchange, routing key]; empty where it is no such list."""
    try:
        return json.dumps(json.loads(raw)[0])
    except (ValueError, TypeError, LookupError, RecursionError):
        return ""
