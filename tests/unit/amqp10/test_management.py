"""Requests about queues: what a broker answers is a number or a refusal, whatever it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.amqp.wire import methods
from agent.amqp.wire.channel import Channel, ChannelClosedError
from agent.amqp.wire.methods import Call
from agent.amqp10 import performatives, sections
from agent.amqp10.types import Value
from tests.unit.amqp.wire.link import turn
from tests.unit.amqp10.peer import PASSWORD, RABBITMQ, Peer, transfer


async def asked(
    *, passive: bool = True, credit: int = 1, swapped: bool = False
) -> tuple[Peer, Channel, asyncio.Future[Call]]:
    peer = await Peer.made(is_source=True, address="/queues/q").open(properties=RABBITMQ)
    channel = await peer.begin()
    asking = channel.ask(methods.QUEUE_DECLARE, queue="q", passive=passive)
    await turn()
    for attach in peer.heard():
        assert attach.name == "attach"
        peer.attach(is_source=attach["role"], handle=attach["handle"] ^ swapped, name="management")
    peer.flow(handle=int(swapped), delivery_count=0, link_credit=credit)
    await turn()
    return peer, channel, asking


def answer(status: str, body: Value, **values: Any) -> bytes:
    message = sections.PROPERTIES.encode(subject=status) + sections.section(sections.VALUE, body)
    return transfer(0, message, handle=1, settled=True, **values)


def counts(messages: Value, consumers: Value) -> Value:
    pairs = (("message_count", messages), ("consumer_count", consumers), ("name", Value("string", "q")))
    return Value("map", tuple((Value("string", name), value) for name, value in pairs))


@pytest.mark.parametrize(("first", "then"), [(0, 0), (1, 0), (1, 1)])
async def test_a_broker_that_takes_nothing_is_asked_nothing(first: int, then: int) -> None:
    """As RabbitMQ 4 while it has an alarm. Who asks has an answer at once, and asks before the session has begun."""
    peer = await Peer.made(is_source=True, address="/queues/q").open(properties=RABBITMQ)
    channel = peer.wire.begin_channel()
    asking = channel.ask(methods.QUEUE_DECLARE, queue="q", passive=True)
    await turn()
    assert not asking.done()
    peer.say(performatives.BEGIN, remote_channel=0, next_outgoing_id=0, incoming_window=first, outgoing_window=1)
    peer.flow(window=then)
    for is_source in (False, True):
        peer.attach(is_source=is_source, handle=int(is_source), name="management")
    peer.flow(handle=0, delivery_count=0, link_credit=1, window=then)
    await turn()
    assert [each.name for each in peer.heard()].count("transfer") == then
    if not then:
        with pytest.raises(ChannelClosedError, match="takes no requests: it has an alarm"):
            asking.result()
    assert asking.done() is not bool(then)
    assert not peer.wire.closed.done()


@pytest.mark.parametrize(("passive", "subject"), [(True, "GET"), (False, "PUT")])
async def test_the_numbers_of_a_queue(*, passive: bool, subject: str) -> None:
    peer, _, asking = await asked(passive=passive)
    requests = [each for each in peer.heard() if each.name == "transfer"]
    assert len(requests) == 1
    found = sections.properties(requests[0].payload, sections.find_sections(requests[0].payload))
    assert (found["subject"], found["to"].value) == (subject, "/queues/q")
    peer.feed(answer("200", counts(Value("ulong", 2**63), Value("uint", 2))))
    await turn()
    assert (asking.result()["messages"], asking.result()["consumers"]) == (2**32 - 1, 2)


@pytest.mark.parametrize(
    "body",
    [
        counts(Value("string", "many"), Value("list", ())),
        counts(Value("long", -5), Value("double", 1.5)),
        Value("map", ((Value("list", (Value("null", None),)), Value("map", ())),)),
        Value("map", ()),
    ],
)
async def test_numbers_that_are_none(body: Value) -> None:
    peer, _, asking = await asked()
    peer.feed(answer("200", body))
    await turn()
    assert (asking.result()["messages"], asking.result()["consumers"]) == (0, 0)


@pytest.mark.parametrize(
    ("status", "body", "code", "text"),
    [
        ("404", Value("string", "no queue 'q'"), 404, "NOT_FOUND - no queue 'q'"),
        ("403", Value("string", "not yours"), 403, "ACCESS_REFUSED - not yours"),
        ("409", Value("map", ()), 406, "PRECONDITION_FAILED - status 409"),
        ("200", Value("null", None), 406, "PRECONDITION_FAILED - status 200"),
        (PASSWORD, Value("string", PASSWORD), 406, "PRECONDITION_FAILED - [redacted]"),
        ("", Value("string", "\x1b\n"), 406, "PRECONDITION_FAILED - \ufffd"),
    ],
)
async def test_refusals(status: str, body: Value, code: int, text: str) -> None:
    peer, channel, _ = await asked()
    peer.feed(answer(status, body))
    await turn()
    error = channel.closed.result()
    assert isinstance(error, ChannelClosedError)
    assert (error.code, str(error)) == (code, text)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (answer("200", Value("binary", bytes(20_000))), "bytes about one queue"),
        (answer("200", Value("string", "x" * 200), more=True) * 100, "bytes about one queue"),
        (transfer(0, b"no message", handle=1), "no AMQP 1.0 section begins"),
        (answer("200", counts(Value("uint", 1), Value("uint", 1))) * 2, "queue.declare-ok answers no request"),
        (transfer(0, b"", handle=2), "a link that wasn't asked for"),
    ],
)
async def test_what_is_no_answer(wrong: bytes, why: str) -> None:
    peer, _, asking = await asked()
    peer.feed(wrong)
    await turn()
    assert why in peer.error
    assert asking.done()


async def test_nothing_is_asked_without_credit_or_before_both_links_are_there() -> None:
    peer, _, _ = await asked(credit=0)
    assert not [each for each in peer.heard() if each.name == "transfer"]
    peer.flow(handle=0, delivery_count=0, link_credit=5)
    assert len([each for each in peer.heard() if each.name == "transfer"]) == 1
    peer.flow(handle=0, delivery_count=1, link_credit=5)
    assert not [each for each in peer.heard() if each.name == "transfer"]


@pytest.mark.parametrize("swapped", [True, False])
async def test_a_link_for_requests_that_is_refused(*, swapped: bool) -> None:
    """By the peer's number of it, which needn't be the agent's."""
    peer, channel, _ = await asked(swapped=swapped)
    peer.heard()
    why = performatives.ERROR.encode(condition="amqp:unauthorized-access", description="no")
    peer.say(performatives.DETACH, handle=1 ^ swapped, closed=True, error=why)
    await turn()
    assert str(channel.closed.result()) == "ACCESS_REFUSED - no"
    assert [(each.name, each.performed.values.get("handle")) for each in peer.heard()] == [("detach", 1), ("end", None)]
