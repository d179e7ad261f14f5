"""Very many exchanges looked at in one batch, on real brokers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from agent.amqp.connect import Connection, connect
from agent.amqp.connection_pool import ChannelPool
from agent.amqp.wire import methods
from agent.core.addresses.uri import parse
from agent.core.rules.names import can_be_asked_for
from agent.links.exchange.deletion_monitor import MissingExchanges
from tests.lab.node import Node

MANY = 1_000


async def declare(connection: Connection, names: list[str]) -> None:
    channel = await connection.channel()
    asked = [channel.ask(methods.EXCHANGE_DECLARE, exchange=name, type="fanout") for name in names]
    await asyncio.gather(*asked)
    channel.leave()


async def test_whatever_is_missing_is_found(broker: Node, name: Callable[[str], str]) -> None:
    names = [f"e{number}" for number in range(MANY)]
    chance = random.Random(7)
    with broker.admin.temporary_vhost(vhost := name("missing")):
        async with await connect(parse(broker.uri(vhost)), where="upstream u", name="t") as connection:
            looks = MissingExchanges(connection, ChannelPool(connection))
            assert await looks.among([]) == frozenset()
            assert await looks.among(names) == set(names)  # all of them, in bounded time
            await declare(connection, names)
            assert await looks.among(names) == frozenset()
            for count in (1, 2, 30):
                gone = chance.sample(names, count)
                for each in gone:
                    broker.admin.delete("exchanges", vhost, each)
                assert await looks.among(names) == set(gone)
                await declare(connection, gone)
            assert await looks.among(["it's 'quoted' in vhost '/' and ü", "e1"]) == {"it's 'quoted' in vhost '/' and ü"}
            longest = "l" * 255
            while not can_be_asked_for(longest, vhost):
                longest = longest[1:]
            assert await looks.among([longest, "e1"]) == {longest}
            assert not connection.is_closed
            await asyncio.sleep(0)
            assert connection.channel_max - connection.wire.free_channels < 10
