"""Declares the exchanges that the configuration defines downstream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agent.amqp.connect import Connection, connect_any
from agent.amqp.failures import one_line
from agent.amqp.wire import methods
from agent.core.addresses.uri import AmqpUri
from agent.core.model import Exchange
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
                    await _declare(connection, declared.exchange)
            except BrokerError as error:
                notes.append(f"{declared.place}: exchange {name!r} can't be declared: {one_line(str(error))}")
    return tuple(notes)


async def _declare(connection: Connection, exchange: Exchange) -> None:
    channel = await connection.channel()
    await channel.ask(
        methods.EXCHANGE_DECLARE,
        methods.EXCHANGE_DECLARE_OK,
        exchange=exchange.name,
        type=exchange.type,
        durable=exchange.durable,
        auto_delete=exchange.auto_delete,
        internal=exchange.internal,
        arguments=exchange.arguments,
    )
