"""The node's end of the queue: every message is checked before Celery sees it.

Celery and kombu trust what they find in Redis: an entry that is not JSON, or lacks a key, ends their event loop, and a
sender's own times and chains are obeyed. So what is taken from a list is read here, and what goes on is made anew.
"""

import functools
import logging
from typing import Any

import kombu
from celery.app.amqp import AMQP
from celery.utils.dispatch import Signal
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps

from jobs.control.envelope import Envelope, readable_body
from schemas.errors import MessageRefused

message_refused = Signal(name="message_refused", providing_args={"body", "reason"})

log = logging.getLogger(__name__)


def checked(queue: str, raw: bytes | str) -> str | None:
    """The message made anew, or None where it is refused."""
    try:
        return str(dumps(Envelope.parse(raw).remade(queue)))
    except MessageRefused as error:
        log.warning("refused a message in %s: %s", queue, error)
        message_refused.send(sender=None, body=readable_body(raw), reason=str(error))
        return None


class CheckedRedis(kombu_redis.PrefixedStrictRedis):  # type: ignore[misc]
    """Sees each answer to BRPOP first. A refused message is as no message: the list has given it up already."""

    def parse_response(self, connection: Any, command_name: str, **options: Any) -> Any:
        answer = super().parse_response(connection, command_name, **options)
        if command_name != "BRPOP" or not answer:
            return answer
        queue, raw = answer
        message = checked(bytes_to_str(queue), raw)
        return None if message is None else (queue, message)


class CheckedQoS(kombu_redis.QoS):  # type: ignore[misc]
    """An entry among the unacknowledged that cannot be read is dropped when its time is up."""

    def ack(self, delivery_tag: Any) -> None:
        """Done here, whether or not the broker heard it: a message that comes again is stale.

        kombu would count it as being worked on for ever, and with one at a time this node would take no other.
        """
        try:
            super().ack(delivery_tag)
        finally:
            virtual.QoS.ack(self, delivery_tag)

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        try:
            super().restore_by_tag(tag, client=client, leftmost=leftmost)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("refused an unacknowledged message: %s", error)
            with self.channel.conn_or_acquire(client) as connection:
                raw = connection.hget(self.unacked_key, tag) or b""
                self._remove_from_indices(tag, connection.pipeline()).execute()
            message_refused.send(sender=None, body=readable_body(raw), reason="no unacknowledged message")


class CheckedChannel(kombu_redis.Channel):  # type: ignore[misc]
    QoS = CheckedQoS

    def _get_client(self) -> Any:
        return functools.partial(CheckedRedis, global_keyprefix=self.global_keyprefix)


class CheckedTransport(kombu_redis.Transport):  # type: ignore[misc]
    Channel = CheckedChannel


class CheckedConnection(kombu.Connection):  # type: ignore[misc]
    def get_transport_cls(self) -> type[CheckedTransport]:
        return CheckedTransport


class CheckedAMQP(AMQP):  # type: ignore[misc]
    Connection = CheckedConnection
