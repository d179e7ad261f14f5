"""Sends to an address of AMQP 1.0, or takes from it, by Apache Qpid Proton: what `proton_user.py` asks for, once.

Debian has proton for its own Python only, which runs this.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from proton import Message, Timeout, ulong  # type: ignore[import-not-found]
from proton.reactor import LinkOption  # type: ignore[import-not-found]
from proton.utils import BlockingConnection  # type: ignore[import-not-found]

DURABLE = 2
PLAIN = ("durable", "priority", "id", "correlation_id", "subject", "reply_to", "content_type", "group_id", "ttl")
COUNTED = ("delivery_count", "first_acquirer")


class Durable(LinkOption):  # type: ignore[misc]
    """The plugin of old releases declares the queue, and refuses one that is more durable than the terminus."""

    def apply(self, link: Any) -> None:
        link.source.durability = link.target.durability = DURABLE


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


def send(connection: Any, address: str, messages: list[dict[str, Any]]) -> list[str]:
    sender = connection.create_sender(address, options=Durable())
    return [str(sender.send(made(each)).remote_state).lower() for each in messages]


def take(connection: Any, address: str, count: int) -> list[dict[str, Any]]:
    receiver = connection.create_receiver(address, credit=count, options=Durable())
    taken: list[dict[str, Any]] = []
    try:
        while len(taken) < count:
            taken.append(shown(receiver.receive()))
            receiver.accept()
    except Timeout:
        pass
    return taken


def main() -> None:
    what, url, hostname, *arguments = json.load(sys.stdin)
    connection = BlockingConnection(url, allowed_mechs="PLAIN", virtual_host=hostname, timeout=10)
    does: dict[str, Any] = {"send": send, "take": take}
    found = does[what](connection, *arguments)
    connection.close()
    json.dump(found, sys.stdout, default=str)


main()
