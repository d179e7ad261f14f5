"""The address that a connection of AMQP 1.0 is for, and a look at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.rpc import attempt, refusal
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.tables import MAX_SHORT
from agent.core.addresses.rabbitmq_address import addressed, in_other_form
from agent.core.fields import EMPTY, Table
from agent.errors import PermanentError

_INVALID: Final = 503


@dataclass(frozen=True, slots=True)
class Terminus:
    """One address to read from or to write to. `is_bare`: the other end speaks AMQP 1.0, too, so that messages pass as
    they are. `filters` are arguments of a consumer."""

    address: str
    is_source: bool
    is_bare: bool = False
    filters: Table = EMPTY

    @property
    def is_queue(self) -> bool:
        """True if RabbitMQ 4 would take it for a queue's."""
        return self.address.startswith("/queues/")


def shortened(address: str) -> str:
    """An address as names are: of 255 bytes at most. It is only shown; the connection knows the address."""
    return address.encode()[:MAX_SHORT].decode(errors="ignore")


async def try_address(connection: Connection, terminus: Terminus) -> None:
    """Raise BrokerError if the broker refuses the address of the connection.

    RabbitMQ before 4.0 isn't asked for an address where it would declare something, a queue that stays forever among
    them; it refuses that one when messages are to flow.
    """
    server, address = connection.server, terminus.address
    other = None
    if server.product == "RabbitMQ":
        other = in_other_form(address, is_source=terminus.is_source, since_4_0=server.limits_deliveries)
        if not server.limits_deliveries and _declares(terminus):
            return
    named = {"queue": shortened(address), "passive": True}
    found = await attempt(connection, methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, **named)
    if not isinstance(found, ChannelClosedError):
        return
    error = refusal(connection, f"attaching to {address!r}", found)
    if found.code != _INVALID:
        raise error
    advised = "" if other is None else f": RabbitMQ {server.version} takes {other!r}"
    raise PermanentError(f"{error}{advised}", facts=found.facts) from found


def _declares(terminus: Terminus) -> bool:
    """True if RabbitMQ before 4.0 declares a queue for whoever attaches to the address."""
    found = addressed(terminus.address)
    if found is None or not found.is_old:
        return False
    return found.is_declared or (found.kind == "exchange" and terminus.is_source)
