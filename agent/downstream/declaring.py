"""Declares the exchanges that the configuration defines downstream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agent.amqp.connect import connect_any
from agent.amqp.declares import declare
from agent.amqp.failures import one_line
from agent.amqp.wire.channel import ChannelClosedError
from agent.core.addresses.uri import AmqpUri
from agent.downstream.reading import WHERE, Reading
from agent.errors import BrokerError

NAME: Final = "federation-agent: declaring exchanges"


async def declare_missing(uris: Sequence[AmqpUri], reading: Reading) -> tuple[str, ...]:
    """Declares those that don't exist yet; returns the errors."""
    notes: list[str] = []
    for vhost, found in reading.definitions.vhosts.items():
        standing = reading.states[vhost].exchanges if vhost in reading.states else {}
        inside = [uri.in_vhost(vhost) for uri in uris]
        for name, declared in found.exchanges.items():
            if name in standing:
                continue
            try:
                async with await connect_any(inside, where=WHERE, name=NAME) as connection:
                    exchange = declared.exchange
                    answer = await declare(
                        connection,
                        "exchange",
                        exchange.name,
                        type=exchange.type,
                        durable=exchange.durable,
                        auto_delete=exchange.auto_delete,
                        internal=exchange.internal,
                        arguments=exchange.arguments,
                    )
                if isinstance(answer, ChannelClosedError):
                    raise answer
            except BrokerError as error:
                notes.append(f"{declared.place}: exchange {name!r} can't be declared: {one_line(str(error))}")
    return tuple(notes)
