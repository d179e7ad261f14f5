"""Messages between real brokers: what arrives, to the byte, and what it costs when the way is slow or breaks."""

from __future__ import annotations

import asyncio
import gc
import hashlib
from collections.abc import Callable

import pytest

from agent.amqp.data.splice import WHOLE
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.properties import HEADERS, Properties
from agent.amqp.wire.refusal_texts import largest_taken
from agent.amqp.wire.tables import encode_table, short_string
from agent.core import fields
from agent.core.fields import Field
from agent.core.model import AckMode
from agent.core.rules.hops import RECEIVED_FROM, Site, received_entry
from tests.conftest import Borrowed
from tests.integration.amqp.conftest import Connecting
from tests.integration.amqp.links import (
    HERE,
    ExactPublisher,
    Link,
    Memory,
    declare,
    running,
    stamped,
    take_exactly,
    until,
    until_depth,
)
from tests.integration.conftest import TlsBroker
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import depth_async, messages_async, publish_async

Naming = Callable[[str], str]
Proxies = Callable[[Node | int], Proxy]
MIB = 1024 * 1024
ENOUGH = "2GB"
KEY = "a key"

EVERY_TAG = (
    ("S", Field("S", "text")), ("empty", Field("S", "")), ("b", Field("b", -1)), ("B", Field("B", 255)),
    ("s", Field("s", -2)), ("u", Field("u", 65_535)), ("I", Field("I", -3)), ("i", Field("i", 2**32 - 1)),
    ("l", Field("l", -(2**63))), ("f", Field("f", b"\x3f\xc0\0\0")), ("d", Field("d", b"\x3f\xf8\0\0\0\0\0\1")),
    ("D", Field("D", b"\2\0\0\1\0")), ("T", Field("T", 2**63)), ("t", Field("t", True)), ("V", Field("V", None)),
    ("x", Field("x", b"\0\xff\xce")), ("A", fields.array(Field("V", None), fields.array(), Field("u", 1))),
    ("F", fields.table((("deep", fields.table((("deeper", Field("d", b"\x40\1\0\0\0\0\0\0")),))),))),
    ("not UTF-8", Field("S", b"\xff\xfe".decode("utf-8", "surrogateescape"))),
)  # fmt: skip
DEEP = fields.text("at the bottom")
for _ in range(200):
    DEEP = fields.array(DEEP)


def text(value: str) -> bytes:
    return short_string(value)


EVERY_PROPERTY = {
    0x8000: text("application/json"), 0x4000: text("gzip"), 0x1000: b"\x02", 0x0800: b"\x07",
    0x0400: text("correlation"), 0x0200: text("reply"), 0x0100: text("3600000"), 0x0080: text("message-id"),
    0x0040: (2**62).to_bytes(8, "big"), 0x0020: text("type"), 0x0010: text("guest"), 0x0008: text("app"),
    0x0004: text("cluster"),
}  # fmt: skip


def made(values: dict[int, bytes], *headers: tuple[str, Field]) -> bytes:
    if headers:
        values = {**values, HEADERS: encode_table(headers)}
    return Properties(sum(values), tuple(sorted(values.items(), reverse=True))).write()


def hop(site: Site) -> Field:
    return received_entry("amqp://elsewhere", "x", redelivered=True, upstream=site)


FORWARDED = [
    made({}),
    made(EVERY_PROPERTY),
    made(EVERY_PROPERTY, *EVERY_TAG),
    *(made({}, each) for each in EVERY_TAG),
    made({}, ("CC", fields.array(fields.text("copy"), fields.text("another")))),
    made({}, ("deep", DEEP)),
    made({}, ("text", fields.text("\x0fx-received-from in a value"))),
    made({}, ("nested", fields.table(((RECEIVED_FROM, fields.array(hop(HERE))),)))),
    made({}, (RECEIVED_FROM, fields.array(hop(Site("far", "v")))), ("n", fields.long(1))),
    made({}, ("a", fields.long(1)), (RECEIVED_FROM, fields.array(hop(Site("far", "v")), hop(Site(None, "v"))))),
    made({}, (RECEIVED_FROM, fields.array())),
    made({}, (RECEIVED_FROM, fields.array(fields.text("junk"), DEEP))),
    *(made({}, (RECEIVED_FROM, field)) for _, field in EVERY_TAG if field.tag != "A"),
    made({}, (RECEIVED_FROM, fields.text("forged")), ("x-invalid-headers", fields.text("forged too"))),
]
DROPPED = [
    made({}, (RECEIVED_FROM, fields.array(hop(HERE)))),
    made({}, (RECEIVED_FROM, fields.array(*(hop(Site("far", "v")) for _ in range(3))))),
    made({}, (RECEIVED_FROM, fields.array(*(fields.long(each) for each in range(5))))),
]
RELEASES = [
    (None, None),
    *(pytest.param(pair, marks=pytest.mark.versions) for pair in [(None, "trixie"), ("trixie", "sid"), ("sid", None)]),
]


@pytest.fixture(params=RELEASES)
def two_brokers(request: pytest.FixtureRequest, broker_on: Callable[..., Node]) -> tuple[Node, Node]:
    """An upstream and a downstream, of one release or two."""
    upstream, downstream = request.param
    return broker_on(upstream, name="second" if upstream == downstream else "broker"), broker_on(downstream)


@pytest.fixture
def narrow(lab: Lab) -> Node:
    """A broker that takes no message larger than a MiB."""
    return lab.shared("narrow", conf=[f"max_message_size = {MIB}"])


async def test_every_property_and_field_to_the_byte(
    two_brokers: tuple[Node, Node], connecting: Connecting, name: Naming
) -> None:
    """By the agent's codec, which its unit tests hold against pamqp: aio-pika knows too few field tags."""
    up, down = await connecting(two_brokers[0].uri()), await connecting(two_brokers[1].uri())
    link = Link(name("fidelity"), up, down, max_hops=3)
    publisher = await ExactPublisher.at(two_brokers[0], up, link.name)
    declare(two_brokers[1], link.name)
    sent = [*FORWARDED, *DROPPED]
    await publisher.publish(*((properties, b"body %d" % number) for number, properties in enumerate(sent)))
    originals = await take_exactly(await up.channel(), f"{link.name} copy", len(sent))
    async with running(link):
        await link.forwarded(len(FORWARDED))
        await until(lambda: sum(link.counts.dropped.values()) == len(DROPPED), what="the others are dropped")
    assert link.counts.dropped == {"visited": 1, "max_hops": 2}
    sorts = down.server.version >= "4"
    came = await take_exactly(await down.channel(), link.name, len(FORWARDED))
    for original, arrived in zip(originals, came, strict=False):
        assert arrived.properties.write() == stamped(original.properties, link.name, sorts=sorts).write()
        assert arrived.body == original.body
        assert arrived.call["routing_key"] == original.call["routing_key"] == "a key"
        assert arrived.call["exchange"] == link.name
    for node in two_brokers:
        assert await depth_async(node.uri(), link.name) == 0


@pytest.mark.parametrize("frame_max", [("", ""), ("8192", ""), ("", "8192"), ("8192", "10000")])
async def test_bodies_of_any_size_between_frames_of_any_size(
    broker: Node, second_broker: Node, connecting: Connecting, name: Naming, frame_max: tuple[str, str]
) -> None:
    up, down = [
        await connecting(f"{node.uri()}?frame_max={limit}" if limit else node.uri())
        for node, limit in zip((second_broker, broker), frame_max, strict=True)
    ]
    link = Link(name("sizes"), up, down)
    declare(second_broker, link.name)
    declare(broker, link.name)
    edges = {frame_max - 8 + by for frame_max in (8192, 10_000, 131_072) for by in (-1, 0, 1)}
    sizes = [0, 1, *sorted(edges), MIB, WHOLE + 1, 3 * MIB, 0, 1]
    bodies = [bytes(range(251)) * (size // 251) + bytes(size % 251) for size in sizes]
    async with running(link):
        await publish_async(second_broker.uri(), link.name, KEY, bodies)
        await link.forwarded(len(bodies))
    arrived = await messages_async(broker.uri(), link.name, len(bodies))
    assert [message.body == body for message, body in zip(arrived, bodies, strict=True)] == [True] * len(bodies)
    assert link.counts.bytes == sum(sizes)


async def test_over_tls(tls_broker: TlsBroker, connecting: Connecting, name: Naming) -> None:
    """At both ends."""
    secure = tls_broker.amqps(f"{tls_broker.trust}&{tls_broker.show('guest')}&auth_mechanism=external", login="")
    link = Link(name("tls"), await connecting(secure), await connecting(secure), queue=name("tls-source"))
    node = tls_broker.node
    declare(node, link.queue, link.name)
    bodies = [bytes([number % 251]) * size for number, size in enumerate([0, 10, MIB, 5 * MIB, 100, 200_000] * 2)]
    async with running(link):
        await publish_async(node.uri(), link.queue, KEY, bodies)
        await link.forwarded(len(bodies))
    arrived = await messages_async(node.uri(), link.name, len(bodies))
    assert [message.body == body for message, body in zip(arrived, bodies, strict=True)] == [True] * len(bodies)


@pytest.mark.parametrize("ack_mode", AckMode)
async def test_every_way_of_acknowledging(
    broker: Node, second_broker: Node, connecting: Connecting, name: Naming, ack_mode: AckMode
) -> None:
    up, down = await connecting(second_broker.uri()), await connecting(broker.uri())
    link = Link(name("acks"), up, down, ack_mode=ack_mode, prefetch=100)
    declare(second_broker, link.name)
    declare(broker, link.name)
    async with running(link):
        await publish_async(second_broker.uri(), link.name, KEY, [b"x" * 1000] * 1_000)
        await link.forwarded(1_000)
    await until_depth(second_broker, link.name, 0)
    await until_depth(broker, link.name, 1_000)


async def test_50_mib_in_little_memory(
    broker: Node, second_broker: Node, connecting: Connecting, name: Naming
) -> None:  # fmt: skip
    up, down = await connecting(second_broker.uri()), await connecting(broker.uri())
    link = Link(name("large"), up, down)
    declare(second_broker, link.name)
    declare(broker, link.name)
    body = bytes(range(250)) * (50 * MIB // 250)
    digest, size = hashlib.sha256(body).digest(), len(body)
    await publish_async(second_broker.uri(), link.name, KEY, [body])
    del body
    memory = Memory()
    async with running(link):
        await link.forwarded(1)
    assert memory.grown < 20 * MIB
    [arrived] = await messages_async(broker.uri(), link.name, 1)
    assert (len(arrived.body), hashlib.sha256(arrived.body).digest()) == (size, digest)


async def test_a_slow_downstream_holds_back_the_upstream_and_costs_no_memory(
    broker: Node, second_broker: Node, connecting: Connecting, proxy_to: Proxies, name: Naming
) -> None:
    proxy = proxy_to(broker)
    up = await connecting(f"{second_broker.uri()}?heartbeat=2")
    down = await connecting(f"{broker.uri(port=proxy.port)}?heartbeat=2")
    link = Link(name("slow"), up, down)
    declare(second_broker, link.name)
    declare(broker, link.name)
    count = 60
    for _ in range(count):
        await publish_async(second_broker.uri(), link.name, KEY, [bytes(MIB)])
    memory = Memory()
    proxy.throttle(10 * MIB)
    async with running(link):
        await until(lambda: up.wire.inbound.is_held, what="reading is held")
        await link.forwarded(count)  # some six seconds: three heartbeats
    assert memory.grown < 40 * MIB
    assert not up.is_closed and not down.is_closed
    assert await depth_async(broker.uri(), link.name) == count


@pytest.mark.thorough
async def test_a_connection_held_for_long_stays_alive_on_both_sides(
    broker: Node, second_broker: Node, connecting: Connecting, proxy_to: Proxies, name: Naming
) -> None:
    proxy = proxy_to(second_broker)
    up = await connecting(f"{second_broker.uri(port=proxy.port)}?heartbeat=2")
    down = await connecting(broker.uri())
    link = Link(name("held"), up, down)
    declare(second_broker, link.name)
    declare(broker, link.name)
    count = 100
    async with running(link):
        up.wire.inbound.hold("a test")
        await publish_async(second_broker.uri(), link.name, KEY, [bytes(200_000)] * count)
        said = proxy.bytes_up
        await until(lambda: proxy.bytes_up >= said + 8 * 8, what="eight of our heartbeats: four of the broker's times")
        assert not up.is_closed
        assert link.counts.forwarded < count
        up.wire.inbound.release("a test")
        await link.forwarded(count)
    assert not up.is_closed


@pytest.mark.thorough
async def test_a_downstream_out_of_memory_blocks_and_goes_on(
    borrowed: Borrowed, second_broker: Node, connecting: Connecting, name: Naming
) -> None:
    broker = await asyncio.to_thread(borrowed)
    up, down = await connecting(second_broker.uri()), await connecting(f"{broker.uri()}?heartbeat=2")
    link = Link(name("blocked"), up, down)
    declare(second_broker, link.name)
    declare(broker, link.name)
    told: list[str | None] = []
    down.listen_blocked(told.append)
    count = 40
    async with running(link):
        await publish_async(second_broker.uri(), link.name, KEY, ["before"])
        await link.forwarded(1)
        await asyncio.to_thread(broker.limit_memory, "1")
        memory = Memory()
        for _ in range(count):
            await publish_async(second_broker.uri(), link.name, KEY, [bytes(MIB)])
            gc.collect()  # what the publisher leaves is no memory of the link
        await until(lambda: up.wire.inbound.is_held, what="reading is held")
        assert down.blocked is not None and told == [down.blocked]
        heard = down.wire.inbound.heard
        await until(
            lambda: down.wire.inbound.heard > heard + 5, what="the broker speaks on, for more than two heartbeats"
        )
        assert not down.is_closed
        assert link.counts.forwarded == 1
        assert memory.grown < 20 * MIB
        await asyncio.to_thread(broker.limit_memory, ENOUGH)
        await link.forwarded(1 + count)
        assert told[-1] is None


async def test_a_large_message_cut_in_the_middle_is_published_whole_or_not_at_all(
    broker: Node, second_broker: Node, connecting: Connecting, proxy_to: Proxies, name: Naming
) -> None:
    proxy = proxy_to(second_broker)
    down = await connecting(broker.uri())
    link = Link(name("cut"), await connecting(second_broker.uri(port=proxy.port)), down)
    other = Link(name("other"), await connecting(second_broker.uri()), down)
    declare(second_broker, link.name, other.name)
    declare(broker, link.name, other.name)
    bodies = [bytes(range(256)) * 4 * 1024 * mib for mib in (20, 1, 20)]
    await publish_async(second_broker.uri(), link.name, KEY, bodies)
    async with running(other):
        for forwarded in (0, 1):  # a 20 MiB message each time
            await link.start()
            proxy.throttle(MIB)
            await until(lambda: link.into.is_midway, what="a large message is on its way")
            await publish_async(second_broker.uri(), other.name, KEY, ["beside"])
            await other.forwarded(1 + forwarded)
            proxy.cut()
            await until(lambda: link.up.is_closed, what="the connection is lost")
            await link.stop()
            assert link.into.closed.done() and down.wire.is_spoiled
            assert await depth_async(broker.uri(), link.name) == 0
            proxy.throttle(None)
            link.up = await connecting(second_broker.uri(port=proxy.port))
        await publish_async(second_broker.uri(), other.name, KEY, ["after"])
        await other.forwarded(3)
    assert not down.is_closed
    async with running(link):
        await link.forwarded(len(bodies))
    arrived = await messages_async(broker.uri(), link.name, len(bodies))
    assert [message.body == body for message, body in zip(arrived, bodies, strict=True)] == [True] * len(bodies)
    assert await depth_async(broker.uri(), link.name) == 0


async def test_a_small_message_cut_in_the_middle_leaves_the_channel_as_good_as_new(
    broker: Node, second_broker: Node, connecting: Connecting, proxy_to: Proxies, name: Naming
) -> None:
    proxy = proxy_to(second_broker)
    down = await connecting(broker.uri())
    link = Link(name("cut"), await connecting(second_broker.uri(port=proxy.port)), down)
    declare(second_broker, link.name)
    declare(broker, link.name)
    await publish_async(second_broker.uri(), link.name, KEY, [bytes(1_000_000)])
    proxy.throttle(100_000)
    before = proxy.bytes_down
    await link.start()
    await until(lambda: proxy.bytes_down > before + 100_000, what="a part of it has come")
    proxy.cut()
    await until(lambda: link.up.is_closed, what="the connection is lost")
    assert not link.into.is_midway
    await link.stop()
    assert not down.wire.is_spoiled
    assert await depth_async(broker.uri(), link.name) == 0
    proxy.throttle(None)
    link.up = await connecting(second_broker.uri())
    async with running(link):
        await link.forwarded(1)


async def test_what_the_downstream_is_too_small_for_stops_nothing_else(
    narrow: Node, second_broker: Node, connecting: Connecting, name: Naming
) -> None:
    """The broker closes the channel over it, and tells the limit; next time it isn't sent."""
    up, down = await connecting(second_broker.uri()), await connecting(narrow.uri())
    link = Link(name("small"), up, down)
    declare(second_broker, link.name)
    declare(narrow, link.name)
    sizes = (10, 2 * MIB, 20, 2 * MIB + 1, 30)
    await publish_async(second_broker.uri(), link.name, KEY, map(bytes, sizes))
    await link.start()
    await until(link.into.closed.done, what="the channel is closed")
    error = link.into.closed.result()
    assert isinstance(error, ChannelClosedError) and error.code == 406
    await link.stop()
    assert not down.is_closed
    link.largest = largest_taken(str(error))
    assert link.largest == MIB
    async with running(link):
        await until(lambda: link.counts.unpublishable.get("too_large", 0) >= 4, what="two go back, and come again")
    await until_depth(second_broker, link.name, 2)
    arrived = await messages_async(narrow.uri(), link.name, await depth_async(narrow.uri(), link.name))
    assert {len(message.body) for message in arrived} == {10, 20, 30}


async def test_what_the_downstream_refuses_goes_back_and_comes_when_it_is_taken(
    broker: Node, second_broker: Node, connecting: Connecting, name: Naming
) -> None:
    up, down = await connecting(second_broker.uri()), await connecting(broker.uri())
    link = Link(name("full"), up, down)
    declare(second_broker, link.name)
    declare(broker, link.name)
    policy = {"max-length": 3, "overflow": "reject-publish"}
    broker.admin.policy("/", link.name, f"^{link.name}$", definition=policy, apply_to="queues")
    async with running(link):
        await until(lambda: broker.admin.get("queues", "/", link.name).get("policy"), what="the queue has its limit")
        await publish_async(second_broker.uri(), link.name, KEY, map(str, range(10)))
        await until(lambda: link.counts.refused > 20, what="what is too much is refused now and then")
        begun, refused = asyncio.get_running_loop().time(), link.counts.refused
        broker.admin.delete("policies", "/", link.name)
        await link.forwarded(10)
        assert (link.counts.refused - refused) <= 10 * (1 + asyncio.get_running_loop().time() - begun)
    assert sorted(int(message.body) for message in await messages_async(broker.uri(), link.name, 10)) == list(range(10))
    await until_depth(second_broker, link.name, 0)
