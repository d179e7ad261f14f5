"""Which connections links share, whatever brokers are at their ends."""

from __future__ import annotations

import math
from typing import cast

import pytest

from agent.amqp.connection_pool import Shared
from agent.amqp.data.publish_tracker import PublishTracker
from agent.amqp.data.quarantined import Capture
from agent.amqp.data.rewriting import Destination
from agent.amqp.declares import Opener
from agent.amqp.wire.ends import HeartbeatMissedError
from agent.core.addresses.uri import AmqpUri, parse
from agent.errors import FailureKind, Side, TransientError
from agent.links.brokers import Brokers, Connections
from agent.links.ends import End, reachable
from agent.links.flow_options import FlowOptions
from agent.links.quarantine import Lane, Quarantines
from agent.runtime.replicas.lease_channel import no_lease
from agent.tasks import UnexpectedErrors
from tests.lab.node import Node


def brokers() -> Brokers:
    return Brokers((parse("amqp://nobody"),), "here", stall_after=30)


def end(where: str, node: Node, name: str = "a shovel") -> End:
    return End(where, (parse(node.uri()),), "/", name=name)


async def opened(connections: Connections, source: End, uri: AmqpUri, destination: End) -> list[Shared]:
    asked = await connections.ask(source)
    up, down = await connections.flow(source, uri, destination, destination_uri=destination.uris[0])
    assert down.connection.where.startswith("destination ")
    return [asked, up, down]


async def test_links_between_any_two_brokers_share_connections_to_equal_ends(broker: Node, second_broker: Node) -> None:
    shared, (uri,) = brokers(), end("source", broker).uris
    first, second = (Connections(shared, lambda _: None) for _ in range(2))
    held = [await opened(each, end("source", broker, name), uri, end("destination", second_broker, name))
            for each, name in ((first, "first"), (second, "second"))]  # fmt: skip
    assert held[0] == held[1]
    assert len(set(held[0])) == 3
    assert [each.users for each in held[0]] == [2, 2, 2]
    await first.leave(first.detach())
    assert not any(each.connection.is_closed for each in held[0])
    await second.leave(second.detach())
    assert all(each.connection.is_closed for each in held[0])


async def test_both_ends_may_be_one_broker_and_a_link_may_be_apart(broker: Node) -> None:
    shared, (uri,) = brokers(), end("source", broker).uris
    together, apart = (Connections(shared, lambda _: None) for _ in range(2))
    ends = end("source", broker), end("destination", broker)
    found = {
        each.connection
        for connections, link in ((together, None), (apart, "1a2b3c4d"))
        for each in await connections.flow(ends[0], uri, ends[1], dedicated=link)
    }
    assert len(found) == 4
    for connections in (together, apart):
        await connections.leave(connections.detach())
    assert all(each.is_closed for each in found)


async def test_what_was_borrowed_is_given_back_where_it_came_from(broker: Node) -> None:
    """A connection that is asked things and one that messages travel on are never confused."""
    shared, at = brokers(), end("source", broker)
    messages = await shared.source(at, at.uris[0])
    async with await shared.control(at) as control:
        assert control is not messages
        assert (control.users, messages.users) == (1, 1)
    assert control.connection.is_closed
    assert not messages.connection.is_closed
    async with await shared.control(at) as again:
        assert again is not control
    await messages.release()


def test_an_empty_host_is_the_downstream_in_the_vhost_that_the_uri_names() -> None:
    own = (parse("amqp://a/ignored"), parse("amqp://b"))
    found = reachable((parse("amqp:///%2fnamed"), parse("amqp://c"), parse("amqp://")), "mine", own)
    assert [(each.host, each.vhost("-")) for each in found] == [
        ("a", "/named"), ("b", "/named"), ("c", "-"), ("a", "mine"), ("b", "mine"),
    ]  # fmt: skip


class Openers(Quarantines):
    """What links give it to open connections with."""

    def __init__(self) -> None:
        super().__init__(UnexpectedErrors())
        self.given: list[Opener] = []

    def capture(self, place: object, target: PublishTracker, lane: Lane) -> Capture:
        self.given.append(lane.opener)
        return super().capture(place, target, lane)


async def test_what_a_link_opens_on_its_way_ends_as_the_rest(broker: Node) -> None:
    """An agent that was frozen deletes no queue of a link that runs elsewhere, nor sets its messages aside."""
    shared, at = brokers(), end("source", broker)
    (uri,) = at.uris
    openers = shared.quarantines = Openers()
    options = FlowOptions("queue", "tag", Destination("x"))
    async with await shared.trial(at, uri) as up:
        capture = shared.capture(at, up, link="1a2b3c4d", options=options, is_quorum=False)
    assert capture is not None
    capture(cast("PublishTracker", None))
    for opener in (lambda: shared.trial(at, uri), *openers.given):
        async with await opener() as connection:
            await connection.channel()
            shared.permit.until = -math.inf
            with pytest.raises(TransientError, match="the agent stood still"):
                await connection.channel()
            assert connection.is_closed
        shared.permit.until = math.inf
    assert openers.given


async def test_a_lease_that_the_downstream_lost_is_its_fault_although_the_link_reads_upstream(broker: Node) -> None:
    shared, at = brokers(), end("upstream", broker)
    shared.permit.on_end = lambda: no_lease("silent for too long", HeartbeatMissedError())
    async with await shared.trial(at, at.uris[0]) as connection:
        shared.permit.until = -math.inf
        with pytest.raises(TransientError, match="the lease of links is lost"):
            await connection.channel()
        lost = connection.wire.closed.result()
        assert (lost.failure.side, lost.failure.kind) == (Side.DOWNSTREAM, FailureKind.HEARTBEATS_MISSED)
