"""A user's program that speaks AMQP 1.0 by Apache Qpid Proton, which Debian has for its own Python only.

That Python runs it with a broker's address and the hostname to open with; it is asked in lines of JSON, and answers in
such lines. Messages are bytes in hexadecimal, so that what a broker makes of them can be looked at byte by byte.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from proton import ConnectionException, Delivery, Handler, Timeout  # type: ignore[import-not-found]
from proton.reactor import LinkOption  # type: ignore[import-not-found]
from proton.utils import BlockingConnection, LinkDetached, SendException  # type: ignore[import-not-found]

DEADLINE = 5
DURABLE = 2


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


def send(connection: Any, address: str, message: str) -> str:
    """The outcome, such as "accepted"."""
    link = connection.create_sender(address, options=Durable()).link
    delivery = link.delivery("tag")
    link.stream(bytes.fromhex(message))
    link.advance()
    connection.wait(lambda: delivery.settled, timeout=DEADLINE)
    return str(delivery.remote_state).lower()


def take(connection: Any, address: str) -> str:
    """The next message."""
    taken = Taken()
    taken.receiver = connection.create_receiver(address, credit=1, handler=taken, options=Durable())
    connection.wait(lambda: taken.messages, timeout=DEADLINE)
    return taken.messages[0].hex()


def main(url: str, hostname: str) -> None:
    for line in sys.stdin:
        asked, *arguments = json.loads(line)
        answer: object
        try:
            connection = BlockingConnection(url, allowed_mechs="PLAIN", virtual_host=hostname, timeout=DEADLINE)
            answer = (send if asked == "send" else take)(connection, *arguments)
            connection.close()
        except (ConnectionException, LinkDetached, SendException, Timeout) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


main(*sys.argv[1:])
