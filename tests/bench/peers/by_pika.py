"""By pika's BlockingConnection, whose `basic_publish` waits for each confirm; a lost connection is opened again."""

from __future__ import annotations

from contextlib import suppress

from pika import BlockingConnection, URLParameters  # type: ignore[import-not-found]  # in var/peers
from pika.exceptions import AMQPConnectionError  # type: ignore[import-not-found]

from tests.bench.peers.window import PREFETCH


def move(source: str, destination: str, queue: str) -> None:
    while True:
        with suppress(AMQPConnectionError):
            _move(source, destination, queue)


def _move(source: str, destination: str, queue: str) -> None:
    with BlockingConnection(URLParameters(source)) as up, BlockingConnection(URLParameters(destination)) as down:
        incoming, outgoing = up.channel(), down.channel()
        incoming.basic_qos(prefetch_count=PREFETCH)
        outgoing.confirm_delivery()
        for method, properties, body in incoming.consume(queue):
            outgoing.basic_publish("", queue, body, properties, mandatory=True)
            incoming.basic_ack(method.delivery_tag)
