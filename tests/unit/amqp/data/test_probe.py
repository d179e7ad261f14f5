"""Probes on the data path: one's own goes on to where it is awaited, any other is dropped, and none is counted."""

from __future__ import annotations

import pytest

from agent.amqp.data.probe import may_be_probe
from agent.amqp.wire import frames, methods
from agent.amqp.wire.properties import Properties
from agent.core import fields
from agent.core.model import AckMode
from agent.core.rules.headers import PROBE
from tests.unit.amqp.wire.link import Link, Sent, with_table

QUEUE = "federation: x -> dc2"
PRIVATE = "federation-agent: probes 1"


def probe(token: str) -> Properties:
    return with_table((PROBE, fields.text(token)))


class Mine:
    def publish(self, token: bytes, channel: int) -> bytes | None:
        payload = methods.BASIC_PUBLISH.encode(routing_key=PRIVATE)
        return frames.frame(frames.METHOD, channel, payload) if token == b"mine" else None


@pytest.mark.parametrize("ack_mode", [AckMode.ON_CONFIRM, AckMode.ON_PUBLISH])
async def test_ones_own_goes_on_as_it_is_and_the_others_are_dropped(ack_mode: AckMode) -> None:
    link = await Link.made(ack_mode=ack_mode)
    link.source.probes = Mine()
    await link.deliver(
        Sent(1, body=b"a"),
        Sent(2, QUEUE, probe("mine")),
        Sent(3, QUEUE, probe("another's")),
        Sent(4, QUEUE, body=b"a user's"),
        Sent(5, body=b"b"),
    )
    published = link.published()
    assert [(got.key, got.body) for got in published] == [
        ("key", b"a"), (PRIVATE, b""), (QUEUE, b"a user's"), ("key", b"b"),
    ]  # fmt: skip
    assert (published[1].exchange, published[1].properties) == ("", probe("mine").write())
    await link.answer(methods.BASIC_ACK, delivery_tag=4, multiple=True)
    assert (link.counts.forwarded, link.counts.dropped) == (3, {})
    assert 5 in [dict(method)["delivery_tag"] for method in link.settled()]


async def test_one_that_is_refused_is_settled_and_counts_nothing() -> None:
    """The next one follows soon."""
    link = await Link.made()
    link.source.probes = Mine()
    await link.deliver(Sent(1, body=b"a"), Sent(2, QUEUE, probe("mine")), Sent(3, body=b"b"))
    await link.answer(methods.BASIC_NACK, delivery_tag=2)
    await link.answer(methods.BASIC_ACK, delivery_tag=3, multiple=True)
    assert (link.counts.forwarded, link.counts.refused) == (2, 0)
    assert {method.name for method in link.settled()} == {"Basic.Ack"}
    assert not link.target.confirms.held


async def test_one_that_comes_by_another_exchange_is_dropped_too() -> None:
    """As the plugin forwards it."""
    link = await Link.made()
    await link.deliver(Sent(1, QUEUE, probe("another's"), redelivered=True))
    assert link.published() == []
    assert [method.name for method in link.settled()] == ["Basic.Ack"]


def test_few_messages_are_looked_at() -> None:
    assert may_be_probe(QUEUE.encode())
    assert not may_be_probe(b"orders.eu")
