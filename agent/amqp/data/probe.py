"""Probes: messages that an agent publishes into the queue of its own link, to see when they come through.

Every agent knows them by a header, forwards none, and drops those of others.

Why: docs/decisions/0016-cheap-probes.md
"""

from __future__ import annotations

from typing import Final, Protocol

from agent.amqp.data import header_table
from agent.amqp.data.header_table import Names
from agent.amqp.wire.properties import HEADERS, Properties
from agent.amqp.wire.tables import CodecError
from agent.core.rules import names
from agent.core.rules.headers import PROBE

_NAMES: Final = Names(PROBE)
_QUEUES: Final = names.QUEUE_PREFIX.encode()  # probes are published to the default exchange with the key of a queue


class Probes(Protocol):
    """The probes of one link."""

    def publish(self, token: bytes, channel: int) -> bytes | None:
        """The frame that publishes a probe downstream on this channel; None if it isn't one of the link's."""


def may_be_probe(routing_key: bytes) -> bool:
    """True if a message with this routing key may be a probe: few have such a key."""
    return routing_key.startswith(_QUEUES)


def token_of(properties: bytes) -> bytes | None:
    """The token by which its agent knows a probe; None if the message isn't one. `properties` begin with their
    flags."""
    try:
        found = Properties.read(properties)
        value = header_table.value_of(found.raw_headers, _NAMES) if found.flags & HEADERS else None
    except CodecError:
        return None
    return None if value is None else value[5:]
