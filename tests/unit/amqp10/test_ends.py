"""Sessions and links end from either side, at any moment, and nothing is left of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp10 import performatives
from agent.amqp10.translator import BLOCKED_AFTER
from agent.errors import TransientError
from tests.unit.amqp.wire.link import turn
from tests.unit.amqp.wire.virtual_loop import in_virtual_time
from tests.unit.amqp10.peer import Peer, Source, Target, message, said, transfer

CLOSE = methods.CHANNEL_CLOSE


def error(condition: str, description: str | None = None) -> bytes:
    return performatives.ERROR.encode(condition=condition, description=description)


def names(peer: Peer) -> list[str]:
    return [each.name for each in peer.heard()]


async def closed(channel: Any) -> str:
    await turn()
    reason = channel.closed.result()
    assert isinstance(reason, ChannelClosedError)
    return f"{reason.code} {reason}"


async def test_a_channel_that_is_closed_ends_its_session() -> None:
    target = await Target.made()
    closing = target.channel.ask(CLOSE, code=200, text="done")
    await turn()
    assert names(target.peer) == ["end"]
    assert not closing.done()
    target.peer.say(performatives.END)
    await turn()
    assert closing.done()
    assert names(target.peer) == []


async def test_a_session_that_the_peer_ends_closes_its_channel() -> None:
    target = await Target.made()
    target.peer.say(performatives.END, error=error("amqp:not-found", "no queue 'a'"))
    assert await closed(target.channel) == "404 NOT_FOUND - no queue 'a'"
    assert names(target.peer) == ["end"]


async def test_a_session_is_ended_once_by_each_side_when_both_want_it() -> None:
    target = await Target.made()
    closing = target.channel.ask(CLOSE, code=200, text="done")
    target.peer.say(performatives.END, error=error("amqp:internal-error"))
    await turn()
    assert names(target.peer) == ["end"]
    assert closing.done()
    assert not target.peer.wire.closed.done()


async def test_a_link_that_the_peer_detaches_ends_its_session() -> None:
    target = await Target.made()
    target.peer.say(performatives.DETACH, handle=0, closed=True, error=error("amqp:resource-deleted", "gone"))
    assert await closed(target.channel) == "404 NOT_FOUND - gone"
    assert names(target.peer) == ["detach", "end"]
    target.peer.say(performatives.END)
    await turn()
    assert names(target.peer) == []


@pytest.mark.parametrize("closed_by_peer", [True, False])
async def test_the_number_of_an_ended_session_is_used_again(closed_by_peer: bool) -> None:
    """Also before the peer's answer: then that is for the former one."""
    peer = await Peer.made(is_source=False).open(channel_max=0)
    first = await peer.begin()
    if closed_by_peer:
        peer.say(performatives.END, error=error("amqp:not-found"))
    else:
        peer.say(performatives.ATTACH, name="n", handle=0, role=True)
        peer.say(performatives.DETACH, handle=0, closed=True, error=error("amqp:not-found"))
    await closed(first)
    second = peer.wire.begin_channel()
    assert second.number == first.number == 1
    await turn()
    if not closed_by_peer:
        peer.say(performatives.END)
    peer.say(performatives.BEGIN, remote_channel=0, next_outgoing_id=0, incoming_window=9, outgoing_window=9)
    await turn()
    assert second.opened.done() and second.is_usable
    assert not peer.wire.closed.done()


def test_a_blocked_destination_is_shown_after_sessions_that_have_ended() -> None:
    """The peer closes some, and one is left that waits for credit."""

    async def scenario() -> None:
        target = await Target.made(credit=0)
        other = await target.peer.begin(channel=1)
        target.peer.say(performatives.END, channel=1, error=error("amqp:internal-error"))
        await closed(other)
        await target.publish(b"a")
        await asyncio.sleep(BLOCKED_AFTER)
        assert target.peer.wire.blocked
        await target.peer.lose()

    in_virtual_time(scenario())


async def test_nothing_is_written_behind_an_end() -> None:
    source, target = await Source.made(prefetch=5_000), await Target.made(credit=0)
    for each in (source, target):
        each.channel.ask(CLOSE, code=200, text="done")
    await turn()
    source.peer.heard(), target.peer.heard()
    await source.deliver(*range(3_000))  # half a window: more would be allowed by a flow
    for peer in (source.peer, target.peer):
        peer.flow(handle=0, delivery_count=0, link_credit=0, echo=True)
        peer.flow(echo=True)
        peer.say(performatives.DETACH, handle=0, closed=True)
        assert names(peer) == []
        peer.say(performatives.END)
        await turn()
        assert not peer.wire.closed.done()


async def test_nothing_more_is_written_or_read_once_a_link_was_refused() -> None:
    target, source = await Target.made(credit=0), await Source.made()
    await target.publish(b"a")
    for peer in (target.peer, source.peer):
        peer.say(performatives.DETACH, handle=0, closed=True, error=error("amqp:internal-error"))
        peer.flow(handle=0, delivery_count=0, link_credit=10, echo=True)
    await source.deliver(0)
    assert target.transfers() == []
    assert source.came == []


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"remote_channel": None}, "a session that wasn't asked for"),
        ({"remote_channel": 7}, "a session that wasn't asked for"),
        ({"remote_channel": 0}, "a session that wasn't asked for"),  # a second time
        ({"remote_channel": 0, "channel": 5}, "a session that wasn't asked for"),
    ],
)
async def test_a_session_begins_only_as_asked_for(values: dict[str, Any], why: str) -> None:
    source = await Source.made()
    source.peer.say(performatives.BEGIN, next_outgoing_id=0, incoming_window=1, outgoing_window=1, **values)
    assert why in source.peer.error


async def test_what_comes_in_no_session_ends_the_connection() -> None:
    source = await Source.made()
    source.peer.say(performatives.END)
    source.peer.feed(transfer(0, message(b"late")))
    assert source.peer.error == "broken AMQP 1.0: transfer in no session"
    assert isinstance(source.peer.wire.closed.result(), TransientError)


@pytest.mark.parametrize(
    "wrong",
    [
        transfer(0, message(b"x"), handle=0),  # the agent's number of the link
        transfer(0, message(b"x"), handle=1),
        transfer(0, message(b"x"), handle=1, message_format=None),
        said(performatives.DETACH, handle=0),
        said(performatives.ATTACH, name="Shovel s 1", handle=8, role=False),  # a second number for it
        said(performatives.ATTACH, name="Shovel s 1", handle=7, role=True),
    ],
)
async def test_what_comes_over_no_link_ends_the_connection(wrong: bytes) -> None:
    source = await Source.made(attach={"handle": 7})
    assert source.channel.is_usable
    source.peer.feed(wrong)
    assert source.peer.error == "broken AMQP 1.0: a link that wasn't asked for"


async def test_a_peer_gives_a_link_no_number_above_what_it_may() -> None:
    source = await Source.made(attach={"handle": 256})
    assert source.peer.error == "broken AMQP 1.0: a link that wasn't asked for"


async def test_a_detach_by_the_peers_number_is_answered_by_the_agents() -> None:
    source = await Source.made(attach={"handle": 7})
    source.peer.heard()
    source.peer.say(performatives.DETACH, handle=7, closed=True)
    detach = source.peer.heard()[0]
    assert (detach.name, detach["handle"]) == ("detach", 0)


async def test_a_deleted_queue_is_said_to_its_consumer_once() -> None:
    source = await Source.made()
    for _ in range(5):
        gone = error("amqp:resource-deleted", "gone")
        source.peer.say(performatives.DETACH, handle=0, closed=True, error=gone)
    assert await closed(source.channel) == "404 NOT_FOUND - gone"
    assert source.cancelled == ["tag"]


@pytest.mark.parametrize("is_closed", [True, False])
async def test_a_detach_is_answered_as_it_came(is_closed: bool) -> None:
    source = await Source.made()
    source.peer.heard()
    source.peer.say(performatives.DETACH, handle=0, closed=is_closed)
    detach, *_ = source.peer.heard()
    assert (detach.name, detach["closed"]) == ("detach", is_closed)
    assert await closed(source.channel) == "320 CONNECTION_FORCED - no reason is given"
