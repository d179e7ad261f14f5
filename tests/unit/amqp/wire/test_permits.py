"""A connection whose time is up ends with whatever is written next."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from tests.unit.amqp.wire.link import opened, ready
from tests.unit.amqp.wire.virtual_loop import in_virtual_time


async def test_leaving_a_channel_after_the_permit_has_ended_ends_the_connection_and_raises_nothing() -> None:
    connection, wire = await opened()
    channel = ready(connection)
    wire.taken()
    connection.permit.until = -math.inf
    channel.leave()
    assert connection.closed.done() and channel.closed.done()
    assert wire.taken() == b""


@pytest.mark.parametrize("what", ["a heartbeat", "a batch"])
def test_what_nobody_waits_for_raises_nothing_in_the_loop_after_the_permit_has_ended(what: str) -> None:
    async def scenario() -> None:
        connection, wire = await opened(heartbeat=10)
        raised: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, found: raised.append(found))
        connection.permit.until = -math.inf
        if what == "a batch":
            connection.write_soon(b"settled")
        await asyncio.sleep(0 if what == "a batch" else 5)
        await asyncio.sleep(0)
        assert connection.closed.done() and not raised
        assert wire.taken() == b""

    in_virtual_time(scenario())
