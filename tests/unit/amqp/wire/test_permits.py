"""A connection whose time is up ends with whatever is written next."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from tests.unit.amqp.wire.link import opened, ready


async def test_leaving_a_channel_after_the_permit_has_ended_ends_the_connection_and_raises_nothing() -> None:
    connection, wire = await opened()
    channel = ready(connection)
    wire.taken()
    connection.permit.until = -math.inf
    channel.leave()
    assert connection.closed.done() and channel.closed.done()
    assert wire.taken() == b""


@pytest.mark.parametrize("what", ["a heartbeat", "a batch"])
async def test_what_nobody_waits_for_raises_nothing_in_the_loop_after_the_permit_has_ended(what: str) -> None:
    connection, wire = await opened()
    wire.taken()
    raised: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, found: raised.append(found))
    connection.permit.until = -math.inf
    if what == "a batch":
        connection.write_soon(b"settled")
    else:
        connection._said = -math.inf
        loop.call_soon(connection._beat)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert connection.closed.done() and not raised
    assert wire.taken() == b""
