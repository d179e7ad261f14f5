"""A user's program that speaks AMQP 1.0 by Apache Qpid Proton, which Debian has for its own Python only.

That Python runs it with a broker's address; it is asked in lines of JSON, and answers in such lines. Messages are bytes
in hexadecimal, so that what a broker makes of them can be looked at byte by byte.
"""

import json
import sys

from proton import Delivery, Endpoint, Handler, Timeout
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, LinkDetached

DEADLINE = 10
DURABLE = 2


class Durable(LinkOption):
    """The plugin of old releases declares the queue, and refuses one that is more durable than the terminus."""

    def apply(self, link):
        link.source.durability = link.target.durability = DURABLE


class Taken(Handler):
    def __init__(self):
        self.messages = []

    def on_delivery(self, event):
        delivery = event.delivery
        if delivery.readable and not delivery.partial:
            self.messages.append(event.link.recv(delivery.pending))
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()


def send(connection, address, message):
    """The outcome, such as "accepted"."""
    sender = connection.create_sender(address, options=Durable())
    delivery = sender.link.delivery("tag")
    sender.link.stream(bytes.fromhex(message))
    sender.link.advance()
    connection.wait(lambda: delivery.settled, timeout=DEADLINE)
    sender.close()
    return str(delivery.remote_state).lower()


def take(connection, address):
    """The next message; None if there is none for a moment."""
    taken = Taken()
    receiver = connection.create_receiver(address, credit=1, handler=taken, options=Durable())
    connection.wait(lambda: taken.messages, timeout=DEADLINE)
    receiver.close()
    return taken.messages[0].hex()


def main(url, hostname):
    connection = None
    for line in sys.stdin:
        asked, *arguments = json.loads(line)
        try:
            if connection is None:
                connection = BlockingConnection(url, allowed_mechs="PLAIN", virtual_host=hostname, timeout=DEADLINE)
            answer = {"send": send, "take": take}[asked](connection, *arguments)
        except (LinkDetached, Timeout, OSError) as error:
            answer, connection = {"error": f"{type(error).__name__}: {error}"}, None
        except Exception as error:  # proton's own
            answer, connection = {"error": f"{type(error).__name__}: {error}"}, None
        print(json.dumps(answer), flush=True)


main(*sys.argv[1:])
