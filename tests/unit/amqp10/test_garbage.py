"""Whatever a peer says, a connection ends with an error that says why at worst: nothing else is raised, or held."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.wire import methods
from agent.amqp.wire.properties import HEADERS, Properties
from agent.amqp.wire.tables import CodecError, encode_table
from agent.amqp10 import performatives, sections, types
from agent.amqp10.bare import NO_PROPERTIES, annotated, without_foreign_user
from agent.amqp10.conversion.message import to_091, to_10
from agent.amqp10.sections import find_sections
from agent.amqp10.types import Value
from agent.core.fields import text
from agent.errors import BrokerError, TransientError
from tests.unit.amqp.wire.link import turn
from tests.unit.amqp10.peer import MUCH, PASSWORD, RABBITMQ, Peer, Source, Target, message, said, transfer

KINDS = [each for name, each in vars(performatives).items() if isinstance(each, performatives.Performative)]
FRAMES = [each for each in KINDS if each.code in range(0x10, 0x19)]


def checked(scenario: Coroutine[Any, Any, Peer]) -> None:
    """Runs it, and looks at what it ended with."""
    unforeseen: list[Any] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unforeseen.append(context))
        peer = await scenario
        for _ in range(5):
            await turn()
        if peer.wire.closed.done():
            error = peer.wire.closed.result()
            assert isinstance(error, BrokerError)
            assert str(error).isprintable() and PASSWORD not in str(error)
        else:
            peer.wire.abort(TransientError("over"))
        await peer.lose()
        await asyncio.wait([peer.opening])
        assert peer.opening.cancelled() or isinstance(peer.opening.exception(), BrokerError | None)

    asyncio.run(run())
    assert unforeseen == []


error = performatives.ERROR.encode(condition="amqp:not-found", description=PASSWORD)
SOURCE_SAYS = [
    transfer(0, message(b"a")),
    transfer(1, b"begin", more=True),
    transfer(1, b"end", delivery_id=None),
    said(
        performatives.FLOW,
        next_incoming_id=0,
        incoming_window=9,
        next_outgoing_id=0,
        outgoing_window=9,
        handle=0,
        delivery_count=3,
        link_credit=0,
        drain=True,
        echo=True,
    ),
    said(performatives.DISPOSITION, role=False, first=0, last=1, settled=True),
    performatives.EMPTY,
    said(performatives.DETACH, handle=0, closed=True, error=error),
    said(performatives.END, error=error),
    said(performatives.CLOSE, error=error),
]
TARGET_SAYS = [
    said(
        performatives.FLOW,
        next_incoming_id=1,
        incoming_window=9,
        next_outgoing_id=0,
        outgoing_window=9,
        handle=0,
        delivery_count=1,
        link_credit=10,
        echo=True,
    ),
    said(performatives.DISPOSITION, role=True, first=0, settled=False, state=performatives.ACCEPTED.encode()),
    said(
        performatives.DISPOSITION,
        role=True,
        first=0,
        last=2,
        settled=True,
        state=performatives.MODIFIED.encode(delivery_failed=True),
    ),
    said(performatives.DISPOSITION, role=True, first=1, settled=True, state=performatives.REJECTED.encode(error=error)),
    said(performatives.BEGIN, remote_channel=1, next_outgoing_id=0, incoming_window=9, outgoing_window=9, channel=1),
    said(
        performatives.ATTACH,
        name="n",
        handle=0,
        role=True,
        source=performatives.SOURCE.encode(address="a"),
        target=performatives.TARGET.encode(address="a"),
        max_message_size=5,
        properties={"a": Value("map", ())},
    ),
    *SOURCE_SAYS[-4:],
]
LOGIN_SAYS = [
    performatives.SASL_HEADER,
    performatives.frame(
        0, performatives.SASL_MECHANISMS.encode(sasl_server_mechanisms=("PLAIN", "X")), performatives.SASL
    ),
    performatives.frame(0, performatives.SASL_OUTCOME.encode(code=0), performatives.SASL),
    performatives.PROTOCOL_HEADER,
    said(performatives.OPEN, container_id="peer", properties=RABBITMQ, idle_time_out=1_000),
    said(performatives.BEGIN, remote_channel=0, next_outgoing_id=0, incoming_window=MUCH, outgoing_window=MUCH),
]

changes = st.lists(
    st.tuples(
        st.sampled_from(["set", "cut", "insert", "repeat", "swap"]), st.integers(0, 2**32), st.binary(max_size=6)
    ),
    max_size=6,
)


def mutated(parts: list[bytes], how: list[tuple[str, int, bytes]]) -> bytes:
    """Of a conversation: some bytes, or whole frames, are others, missing, repeated or elsewhere."""
    parts = list(parts)
    for kind, place, data in how:
        at = place % len(parts)
        if kind == "repeat":
            parts.insert(at, parts[at])
        elif kind == "swap":
            other = (place // len(parts)) % len(parts)
            parts[at], parts[other] = parts[other], parts[at]
        else:
            part = bytearray(parts[at])
            where = place // len(parts) % max(1, len(part))
            if kind == "set":
                part[where : where + len(data)] = data
            elif kind == "insert":
                part[where:where] = data
            else:
                del part[where : where + 1 + len(data)]
            parts[at] = bytes(part)
    return b"".join(parts)


cuts = st.lists(st.integers(1, 60), max_size=60)
numbers = st.integers(0, 3) | st.sampled_from([255, 2**16 - 1, 2**31, 2**32 - 1])
values = st.one_of(
    st.builds(lambda number: Value("uint", number), numbers),
    st.builds(lambda number: Value("ushort", number % 2**16), numbers),
    st.builds(lambda flag: Value("boolean", flag), st.booleans()),
    st.builds(lambda plain: Value("string", plain), st.text(max_size=5)),
    st.builds(lambda plain: Value("binary", plain), st.binary(max_size=5)),
    st.just(Value("null", None)),
    st.just(Value("map", ((Value("list", ()), Value("null", None)),))),
    st.just(Value("described", (Value("symbol", PASSWORD), Value("list", ())))),
    st.just(Value("described", (Value("ulong", 0x24), Value("list", ())))),
    st.just(Value("described", (Value("ulong", 0x1D), Value("list", (Value("symbol", "amqp:x"),))))),
)
lists = st.builds(
    lambda kind, items, payload, channel: performatives.frame(
        channel, b"\x00\x53" + bytes((kind.code,)) + types.encode(Value("list", tuple(items))) + payload
    ),
    st.sampled_from(FRAMES),
    st.lists(values, max_size=14),
    st.binary(max_size=20),
    st.sampled_from([0, 0, 0, 1, 9]),
)
lying = st.builds(
    lambda size, offset, kind, data: performatives.PREFIX.pack(size, offset, kind, 0) + data,
    st.integers(0, 60) | st.sampled_from([2**18, 2**18 + 1, 2**32 - 1]),
    st.integers(0, 4) | st.just(255),
    st.integers(0, 2),
    st.binary(max_size=60),
)
garbage = st.lists(lists | lists | lying | st.binary(max_size=30) | st.just(performatives.EMPTY), max_size=12).map(
    b"".join
)


@given(changes, cuts)
def test_a_login(how: list[tuple[str, int, bytes]], sizes: list[int]) -> None:
    async def scenario() -> Peer:
        peer = Peer.made()
        peer.feed(mutated(LOGIN_SAYS, how), sizes)
        return peer

    checked(scenario())


@given(st.integers(0, len(LOGIN_SAYS)), garbage, cuts)
def test_a_login_that_becomes_garbage(steps: int, said: bytes, sizes: list[int]) -> None:
    async def scenario() -> Peer:
        peer = Peer.made()
        peer.feed(b"".join(LOGIN_SAYS[:steps]))
        await turn()
        peer.feed(said, sizes)
        return peer

    checked(scenario())


async def a_source(data: bytes, sizes: list[int], *, is_bare: bool) -> Peer:
    source = await Source.made(is_bare=is_bare, prefetch=3)
    source.peer.feed(data[: len(data) // 2], sizes)
    await turn()
    if source.channel.is_usable and source.came:
        source.settle(1)
    if source.channel.is_usable:
        source.cancel()
        source.consume("other", prefetch=5)
    source.peer.feed(data[len(data) // 2 :], sizes)
    return source.peer


async def a_target(data: bytes, sizes: list[int], *, is_bare: bool) -> Peer:
    target = await Target.made(is_bare=is_bare, credit=2)
    await target.publish(message(b"a"), message(b"b"), message(b"c"))
    target.peer.feed(data[: len(data) // 2], sizes)
    await turn()
    if target.channel.is_usable:
        await target.publish(message(b"d"), b"no message")
    target.peer.feed(data[len(data) // 2 :], sizes)
    await turn()
    if target.channel.is_usable:
        target.channel.ask(methods.CHANNEL_CLOSE, code=200, text="done")
    return target.peer


@given(changes, cuts, st.booleans())
def test_a_source(how: list[tuple[str, int, bytes]], sizes: list[int], is_bare: bool) -> None:
    checked(a_source(mutated(SOURCE_SAYS, how), sizes, is_bare=is_bare))


@given(garbage, cuts, st.booleans())
def test_a_source_that_says_garbage(said: bytes, sizes: list[int], is_bare: bool) -> None:
    checked(a_source(said, sizes, is_bare=is_bare))


@given(changes, cuts, st.booleans())
def test_a_destination(how: list[tuple[str, int, bytes]], sizes: list[int], is_bare: bool) -> None:
    checked(a_target(mutated(TARGET_SAYS, how), sizes, is_bare=is_bare))


@given(garbage, cuts, st.booleans())
def test_a_destination_that_says_garbage(said: bytes, sizes: list[int], is_bare: bool) -> None:
    checked(a_target(said, sizes, is_bare=is_bare))


WHOLE = [
    sections.HEADER.encode(durable=True, ttl=5, delivery_count=1),
    sections.section(0x71, Value("map", ((Value("symbol", "x"), Value("uint", 5)),))),
    sections.section(0x72, Value("map", ((Value("symbol", "x-opt-deaths"), Value("list", ())),))),
    sections.PROPERTIES.encode(message_id="id", user_id=b"who", content_type="t", creation_time=5, group_sequence=1),
    sections.section(0x74, Value("map", ((Value("string", "n"), Value("list", (Value("long", 1),))),))),
    message(b"body"),
    sections.section(0x78, Value("map", ())),
]
ADDED = Properties(HEADERS, ((HEADERS, encode_table((("x-shovelled", text("x")),))),)).write()


@given(changes)
def test_what_is_in_a_message(how: list[tuple[str, int, bytes]]) -> None:
    """It can be converted, or it is no message."""
    found = mutated(WHOLE, how)
    for step in (
        lambda: to_091(found, find_sections(found)),
        lambda: annotated(found, ADDED),
        lambda: annotated(found, NO_PROPERTIES),
        lambda: without_foreign_user(found, b"u"),
        lambda: to_10(found, found, b"", b""),
        lambda: to_10(ADDED[:6] + found, found, b"", b""),
    ):
        with suppress(CodecError):
            step()
