"""The address that a connection of AMQP 1.0 is for, and a look at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.declares import declare
from agent.amqp.rpc import refusal
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.methods import Call
from agent.amqp.wire.refusal_texts import ACCESS_REFUSED, NOT_FOUND, RESOURCE_ERROR
from agent.amqp.wire.tables import MAX_SHORT
from agent.core.addresses.rabbitmq_address import addressed, in_other_form
from agent.core.fields import EMPTY, Table
from agent.errors import BrokerError, PermanentError

RABBITMQ: Final = "RabbitMQ"
_INVALID: Final = 503


@dataclass(frozen=True, slots=True)
class Terminus:
    """One address to read from or to write to. `is_bare`: the other end speaks AMQP 1.0, too, so that messages pass as
    they are. `filters` are arguments of a consumer, and `link_name` is an operator's name of it. `is_counted`: it has
    to be known which of the messages that are read are settled at their broker, too. `settles_early`: messages are
    settled at their source before the broker of this address has them."""

    address: str
    is_source: bool
    is_bare: bool = False
    filters: Table = EMPTY
    link_name: str | None = None
    is_counted: bool = False
    settles_early: bool = False

    @property
    def is_queue(self) -> bool:
        """True if RabbitMQ 4 would take it for a queue's."""
        return self.address.startswith("/queues/")


def shortened(address: str) -> str:
    """An address as names are: of 255 bytes at most. It is only shown; the connection knows the address."""
    return address.encode()[:MAX_SHORT].decode(errors="ignore")


async def ask_for_address(
    connection: Connection, terminus: Terminus, *, passive: bool = True
) -> Call | ChannelClosedError | None:
    """Look at the address of the connection, or declare its queue; return the broker's answer. Its numbers mean
    something of a queue to read from that RabbitMQ 4 shows; an address to write to that gives no credit within a second
    has no consumers.

    None: that shows when messages are to flow. RabbitMQ before 4.0 isn't asked for an address where it would declare
    something, a queue that stays forever among them. 4.3 shows a queue only to users who may configure it, and none
    while it has an alarm.
    """
    if connection.server.product == RABBITMQ and not connection.server.shows_queues and _declares(terminus):
        return None
    answer = await declare(connection, "queue", shortened(terminus.address), passive=passive)
    is_hidden = isinstance(answer, ChannelClosedError) and answer.code in {ACCESS_REFUSED, RESOURCE_ERROR}
    return None if is_hidden and passive and terminus.is_source and connection.server.shows_queues else answer


def may_be_declared(connection: Connection, terminus: Terminus, answer: Call | ChannelClosedError | None) -> bool:
    """True if the address is that of a queue that is missing, and that its broker declares."""
    is_missing = isinstance(answer, ChannelClosedError) and answer.code == NOT_FOUND
    return is_missing and terminus.is_queue and connection.server.shows_queues


def address_refused(connection: Connection, terminus: Terminus, answer: ChannelClosedError) -> BrokerError:
    """The error for a refusal, with the form of the address that another release of RabbitMQ takes."""
    server, doing = connection.server, f"attaching to {terminus.address!r}"
    if answer.code != _INVALID:
        return refusal(connection, doing, answer)
    other = in_other_form(terminus.address, is_source=terminus.is_source, since_4_0=server.shows_queues)
    advised = f": RabbitMQ {server.version} takes {other!r}" if other and server.product == RABBITMQ else ""
    return PermanentError(f"{answer.what}{advised}", where=connection.where, doing=doing, cause=answer)


def _declares(terminus: Terminus) -> bool:
    """True if RabbitMQ before 4.0 declares a queue for whoever attaches to the address."""
    found = addressed(terminus.address)
    if found is None or not found.is_old:
        return False
    return found.is_declared or (found.kind == "exchange" and terminus.is_source)
