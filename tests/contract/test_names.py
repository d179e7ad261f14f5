"""Names as long as they may be. From 4.0 on a broker can't send a refusal of more than 255 bytes that isn't ASCII."""

from __future__ import annotations

from typing import Final

from agent.amqp.connection_pool import ChannelPool
from agent.amqp.declares import Presence, probe
from agent.amqp.wire import methods
from agent.core import fields
from agent.core.fields import Field
from agent.core.rules.names import can_be_asked_for, can_be_declared
from agent.links.exchange.deletion_monitor import MissingExchanges
from tests.contract.asking import OK, Asking, Release
from tests.contract.test_declares import NEW

LONGEST: Final = 255
UNSENT: Final = "closed: 541 INTERNAL_ERROR"
CUT: Final = "404 NOT_FOUND - no {} '{}..."
MISSING: Final = {"3.10": CUT, "4.0": UNSENT}
"""Of a name that isn't ASCII and whose refusal is longer than 255 bytes."""
DIFFERENT: Final = {"3.10": "406 PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{}...", "4.0": UNSENT}
ODD: Final = "ü|=ß\t%?*'in vhost'"


def longest_that_can_be_asked_for(vhost: str, kind: str) -> str:
    return next(name for n in range(LONGEST, 0, -1) if can_be_asked_for(name := "ü" * n, vhost, kind=kind))


def said(refusal: str) -> str:
    """Without what is behind the beginning of the name."""
    return refusal if refusal.startswith("closed") else f"{refusal[: refusal.index('ü' * 9) + 9]}..."


async def test_a_missing_name(ask: Asking, release: Release) -> None:
    for kind, method in (("queue", methods.QUEUE_DECLARE), ("exchange", methods.EXCHANGE_DECLARE)):
        answer, begin = release.says(MISSING), "ü" * 9
        name = longest_that_can_be_asked_for(release.vhost, kind)
        assert await ask(method, passive=True, **{kind: name}) == f"404 NOT_FOUND - no {kind} '{name}' in vhost 'V'"
        assert said(await ask(method, passive=True, **{kind: f"{name}ü"})) == answer.format(kind, begin)
        ascii_only = "x" * LONGEST
        assert (await ask(method, passive=True, **{kind: ascii_only})).startswith(f"404 NOT_FOUND - no {kind} 'xxx")


async def test_a_refused_declaration(ask: Asking, release: Release) -> None:
    assert await ask.queue(name := "ü" * 127) == NEW
    assert said(await ask.queue(name, durable=False)) == release.says(DIFFERENT).format("ü" * 9)
    short = next(name for n in range(127, 0, -1) if can_be_declared(name := "ü" * n, release.vhost))
    await ask.queue(short)
    refused = await ask.queue(short, {"x-message-ttl": 2**31})
    assert refused.startswith("406 PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'ü")


async def test_odd_names(ask: Asking) -> None:
    assert await ask.queue(ODD) == await ask.counted(ODD) == NEW
    shown = ODD.replace("\t", " ")
    assert await ask.exchange(ODD, "fanout", passive=True) == f"404 NOT_FOUND - no exchange '{shown}' in vhost 'V'"


async def test_bindings_between_exchanges_of_long_names(ask: Asking, release: Release) -> None:
    source, destination = "ü" * 127, "ö" * 127
    assert [await ask.exchange(each, "topic") for each in (source, destination)] == [OK, OK]
    hop = fields.table((("cluster-name", fields.text("c" * 200)), ("hops", Field("s", 1))))
    binding = {
        "source": source,
        "destination": destination,
        "routing_key": "k" * LONGEST,
        "arguments": (("x-bound-from", fields.array(*[hop] * 200)),),
    }
    assert [await ask(methods.EXCHANGE_BIND, **binding) for _ in range(2)] == [OK, OK]
    [listed] = release.node.admin.get("exchanges", release.vhost, source, "bindings", "source")
    assert (listed["destination"], listed["routing_key"]) == (destination, "k" * LONGEST)
    assert listed["arguments"] == {"x-bound-from": [{"cluster-name": "c" * 200, "hops": 1}] * 200}
    assert await ask(methods.EXCHANGE_UNBIND, **binding) == OK
    assert release.node.admin.get("exchanges", release.vhost, source, "bindings", "source") == []


async def test_the_agent_finds_what_is_missing_by_the_refusals_text(ask: Asking, release: Release) -> None:
    connection = await ask.connection()
    looks = MissingExchanges(connection, ChannelPool(connection))
    there = [f"there {number}" for number in range(40)]
    for each in there:
        await ask.exchange(each, "fanout")
    gone = ["gone 1", "it's 'quoted' in vhost '/' and ü", longest_that_can_be_asked_for(release.vhost, "exchange")]
    assert await looks.among([gone[0], *there[:20], gone[1], *there[20:], gone[2]]) == set(gone)
    assert await looks.among(there) == frozenset()
    assert not connection.is_closed


async def test_the_agent_asks_for_the_longest_names_on_a_connection_that_may_be_lost(ask: Asking) -> None:
    long, standing = "ü" * 127, "ö" * 127
    await ask.queue(standing)
    connection = await ask.connection()
    found = await probe(connection, queues=["gone", f"{long[:-1]}ä", standing], spare=ask.another)
    presences = [Presence.MISSING, Presence.MISSING, Presence.EXISTS]
    assert [each.presence for each in found.queues.values()] == presences
    [untold] = (await probe(connection, exchanges=[f"{long[:-1]}ä"])).exchanges.values()
    assert (untold.presence, untold.detail) == (
        Presence.FAILED,
        "its name is too long for a broker to say that it is missing",
    )
    assert not connection.is_closed
