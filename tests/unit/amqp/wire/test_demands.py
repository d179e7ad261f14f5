"""What a broker asks of us on a channel, and that it gets its answer."""

from __future__ import annotations

import pytest

from agent.amqp.wire import frames, methods
from tests.unit.amqp.wire.link import Link, calls, feed, opened, ready


def cancel(channel: int, *, nowait: bool) -> bytes:
    return frames.frame(frames.METHOD, channel, methods.BASIC_CANCEL.encode(consumer_tag="t", nowait=nowait))


@pytest.mark.parametrize(("nowait", "answers"), [(False, ["Basic.CancelOk"]), (True, [])])
async def test_a_cancel_is_answered_where_the_broker_waits_for_it(nowait: bool, answers: list[str]) -> None:
    connection, wire = await opened()
    channel = ready(connection)
    wire.taken()
    cancelled: list[str] = []
    channel.on_cancel = cancelled.append
    feed(connection, cancel(channel.number, nowait=nowait))
    found = calls(wire.taken())
    assert [method.name for _, method, _ in found] == answers
    assert [(number, dict(method)) for number, method, _ in found] == [(1, {"consumer_tag": "t"})] * len(answers)
    assert cancelled == ["t"]


async def test_a_cancel_among_deliveries_is_answered() -> None:
    link = await Link.made()
    cancelled: list[str] = []
    link.out.on_cancel = cancelled.append
    feed(link.upstream, cancel(link.out.number, nowait=False))
    assert [method.name for method in link.settled()] == ["Basic.CancelOk"]
    assert cancelled == ["t"]


async def test_nothing_is_said_on_a_channel_that_is_closing() -> None:
    connection, wire = await opened()
    channel = ready(connection)
    channel.leave()
    wire.taken()
    feed(connection, cancel(channel.number, nowait=False))
    assert wire.taken() == b""
