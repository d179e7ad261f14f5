"""A user's program that speaks AMQP 1.0 by Apache Qpid Proton, which Debian has for its own Python only.

That Python runs it with a broker's address, the hostname to open with, and the seconds that anything may take; it is
asked in lines of JSON, and answers in such lines. A message is either bytes in hexadecimal, so that what a broker makes
of it can be looked at byte by byte, or what `amqp10_client.py` calls a message.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from proton import ConnectionException, Delivery, Handler, Message, Timeout, ulong  # type: ignore[import-not-found]
from proton.reactor import LinkOption  # type: ignore[import-not-found]
from proton.utils import BlockingConnection, LinkDetached, SendException  # type: ignore[import-not-found]

DURABLE = 2
PLAIN = ("durable", "priority", "id", "correlation_id", "subject", "reply_to", "content_type", "group_id", "ttl")
COUNTED = ("delivery_count", "first_acquirer")


class Durable(LinkOption):  # type: ignore[misc]
    """The plugin of RabbitMQ 3 refuses a queue that is more durable than the terminus."""

    def apply(self, link: Any) -> None:
        link.source.durability = link.target.durability = DURABLE


class Taken(Handler):  # type: ignore[misc]
    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.receiver: Any = None  # receives while something refers to it

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if delivery.readable and not delivery.partial:
            self.messages.append(event.link.recv(delivery.pending))
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()


def send_bytes(connection: Any, address: str, messages: list[str]) -> list[str]:
    """The outcome of each, such as "accepted"."""
    outcomes = []
    link = connection.create_sender(address, options=Durable()).link
    for number, message in enumerate(messages):
        delivery = link.delivery(str(number))
        link.stream(bytes.fromhex(message))
        link.advance()
        connection.wait(lambda delivery=delivery: delivery.settled)
        outcomes.append(str(delivery.remote_state).lower())
    return outcomes


def take_bytes(connection: Any, address: str, count: int) -> list[str]:
    """So many messages, or those that come in time."""
    taken = Taken()
    taken.receiver = connection.create_receiver(address, credit=count, handler=taken, options=Durable())
    try:
        connection.wait(lambda: len(taken.messages) >= count)
    except Timeout:
        if not taken.messages:
            raise
    return [each.hex() for each in taken.messages]


def send(connection: Any, address: str, messages: list[dict[str, Any]]) -> list[str]:
    return send_bytes(connection, address, [made(each).encode().hex() for each in messages])


def take(connection: Any, address: str, count: int) -> list[dict[str, Any]]:
    found = []
    for each in take_bytes(connection, address, count):
        message = Message()
        message.decode(bytes.fromhex(each))
        found.append(shown(message))
    return found


def made(asked: dict[str, Any]) -> Any:
    """Text is a section of data; anything in `value` a value."""
    is_value = "value" in asked
    body = asked["value"] if is_value else asked["body"].encode()
    message = Message(body=body, inferred=not is_value, durable=True)
    for name in PLAIN:
        if name in asked:
            setattr(message, name, asked[name])
    if isinstance(message.id, int):
        message.id = ulong(message.id)
    message.properties = asked.get("properties")
    message.annotations = asked.get("annotations")
    return message


def shown(message: Any) -> dict[str, Any]:
    body = message.body
    found: dict[str, Any] = {"body": bytes(body).decode()} if isinstance(body, bytes | memoryview) else {"value": body}
    found |= {name: getattr(message, name) for name in (*PLAIN, *COUNTED)}
    annotations = {str(name): value for name, value in (message.annotations or {}).items()}
    return found | {"properties": message.properties or {}, "annotations": annotations}


REQUESTS = {each.__name__: each for each in (send_bytes, take_bytes, send, take)}


def main(url: str, hostname: str, patience: str) -> None:
    for line in sys.stdin:
        asked, *arguments = json.loads(line)
        answer: object
        try:
            connection = BlockingConnection(url, allowed_mechs="PLAIN", virtual_host=hostname, timeout=float(patience))
            answer = REQUESTS[asked](connection, *arguments)
            connection.close()
        except (ConnectionException, LinkDetached, SendException, Timeout) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(f"{json.dumps(answer, default=str)}\n")
        sys.stdout.flush()


main(*sys.argv[1:])
