"""The node's end of the queue, where its broker goes away."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.control.queue import CONTROL_QUEUE, make_app
from jobs.settings import Settings
from tests.services import Server
from workers.intake import CheckedConnection

pytestmark = pytest.mark.services


@pytest.fixture
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.stop()


def test_a_message_that_could_not_be_acknowledged_does_not_keep_its_node_from_the_next(
    server: Server, tmp_path: Path
) -> None:
    app = make_app(Settings(redis_url=server.url, data_dir=tmp_path), server.url)
    received: list[Any] = []
    with CheckedConnection(app.conf.broker_read_url, transport_options=app.conf.broker_transport_options) as connection:
        channel = connection.channel()
        channel.basic_qos(0, 1, False)
        queue = app.amqp.queues[CONTROL_QUEUE]
        consumer = connection.Consumer([queue], channel=channel, on_message=received.append)
        consumer.consume()
        app.send_task("specbatch.submit_scheduled", args=["nightly", "2030-01-01T00-00-00"], queue=CONTROL_QUEUE)
        connection.drain_events(timeout=5)
        assert len(received) == 1 and not channel.qos.can_consume()
        server.kill()
        with pytest.raises(connection.connection_errors):
            received[0].ack()
        assert channel.qos.can_consume()
        server.restart()
    app.close()
