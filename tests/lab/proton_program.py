"""Sends to an address of AMQP 1.0, or takes from it, by Apache Qpid Proton: what `proton_user.py` asks for, once.

Debian has proton for its own Python only, which runs this.
"""

import json
import sys

from proton import Message, Timeout, ulong
from proton.reactor import LinkOption
from proton.utils import BlockingConnection

DURABLE = 2
PLAIN = ("durable", "priority", "id", "correlation_id", "subject", "reply_to", "content_type", "group_id", "ttl")
COUNTED = ("delivery_count", "first_acquirer")


class Durable(LinkOption):
    """The plugin of old releases declares the queue, and refuses one that is more durable than the terminus."""

    def apply(self, link):
        link.source.durability = link.target.durability = DURABLE


def made(asked):
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


def shown(message):
    body = message.body
    found = {"body": bytes(body).decode()} if isinstance(body, bytes | memoryview) else {"value": body}
    found |= {name: getattr(message, name) for name in (*PLAIN, *COUNTED)}
    annotations = {str(name): value for name, value in (message.annotations or {}).items()}
    return found | {"properties": message.properties or {}, "annotations": annotations}


def send(connection, address, messages):
    sender = connection.create_sender(address, options=Durable())
    return [str(sender.send(made(each)).remote_state).lower() for each in messages]


def take(connection, address, count):
    receiver = connection.create_receiver(address, credit=count, options=Durable())
    taken = []
    try:
        while len(taken) < count:
            taken.append(shown(receiver.receive()))
            receiver.accept()
    except Timeout:
        pass
    return taken


def main():
    what, url, hostname, *arguments = json.load(sys.stdin)
    connection = BlockingConnection(url, allowed_mechs="PLAIN", virtual_host=hostname, timeout=10)
    found = {"send": send, "take": take}[what](connection, *arguments)
    connection.close()
    json.dump(found, sys.stdout, default=str)


main()
