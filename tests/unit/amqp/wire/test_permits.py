"""A connection whose time is up ends with whatever is written next."""

from __future__ import annotations

import math

from tests.unit.amqp.wire.link import opened, ready


async def test_leaving_a_channel_after_the_permit_has_ended_ends_the_connection_and_raises_nothing() -> None:
    connection, wire = await opened()
    channel = ready(connection)
    wire.taken()
    connection.permit.until = -math.inf
    channel.leave()
    assert connection.closed.done() and channel.closed.done()
    assert wire.taken() == b""
