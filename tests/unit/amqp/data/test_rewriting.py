"""What kinds of links may change of messages, and where these go, byte for byte."""

from __future__ import annotations

import pytest

from agent.amqp.data import header_table
from agent.amqp.data.header_table import Names
from agent.amqp.data.prepared import Prepared
from agent.amqp.data.rewriting import Delivery, Destination, PropertyChanges, Untouched
from agent.amqp.wire.properties import FLAGS, HEADERS, USER_ID, Properties, encode
from agent.amqp.wire.tables import CodecError, short_string
from agent.core import fields
from tests.unit.amqp.wire.link import Link, Sent, with_table

CC, RECEIVED = Names("CC"), Names("x-received-from")
BODIES = [b"", b"b", bytes(200_000)]  # by the long way, the quick one, and in several frames


class FirstHop:
    """Like a queue link's: entries of what a delivery came with, CC renamed, what was there before kept."""

    marks = (short_string("x-received-from"), short_string("CC"))
    varies = True

    def __init__(self, *, users: frozenset[bytes] | None = None) -> None:
        self.changes = PropertyChanges(users=users)
        self.version = 0

    def entries(self, delivery: Delivery) -> bytes:
        return b"".join([
            header_table.entry("x-received-from", fields.array(fields.boolean(delivery.redelivered))),
            header_table.text_entry("x-original-exchange", delivery.exchange),
            header_table.text_entry("x-original-routing-key", delivery.routing_key + b"%d" % self.version),
        ])  # fmt: skip

    def rewrite(self, headers: bytes, delivery: Delivery) -> bytes | str:
        if header_table.find(headers, RECEIVED) is not None:
            return "visited"
        return header_table.with_first(header_table.renamed(headers, CC, "x-original-cc"), self.entries(delivery))


def entry_of(key: str, *, redelivered: bool = False, version: int = 0) -> bytes:
    made = FirstHop()
    made.version = version
    return made.entries(Delivery(b"upstream exchange", key.encode(), redelivered))


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("destination", [
    Destination(), Destination("", "queue"), Destination("x", None), Destination(None, "key", mandatory=False),
])  # fmt: skip
async def test_a_message_goes_where_the_kind_says(destination: Destination, body: bytes) -> None:
    link = await Link.made(rewriter=FirstHop(), destination=destination)
    keys = ["a", "b", "", "a"]
    await link.deliver(*(Sent(tag, key=key, body=body) for tag, key in enumerate(keys, start=1)))
    exchange = "upstream exchange" if destination.exchange is None else destination.exchange
    expected = [key if destination.routing_key is None else destination.routing_key for key in keys]
    found = link.published()
    assert [(got.exchange, got.key, got.mandatory) for got in found] == [
        (exchange, key, destination.mandatory) for key in expected
    ]
    assert [Properties.read(got.properties).raw_headers[4:] for got in found] == [entry_of(key) for key in keys]


@pytest.mark.parametrize("body", BODIES)
async def test_several_headers_are_added_renamed_and_judged(body: bytes) -> None:
    link = await Link.made(rewriter=FirstHop())
    copies = fields.array(fields.text("copy"))
    await link.deliver(
        Sent(1, properties=with_table(("z", fields.long(1))), body=body, redelivered=True),
        Sent(2, properties=with_table(("z", fields.long(1)), ("CC", copies), ("a", fields.text("x"))), body=body),
        Sent(3, properties=with_table(("x-received-from", copies)), body=body),
    )
    z, a = header_table.entry("z", fields.long(1)), header_table.entry("a", fields.text("x"))
    assert [Properties.read(got.properties).raw_headers[4:] for got in link.published()] == [
        entry_of("key", redelivered=True) + z,
        entry_of("key") + z + header_table.entry("x-original-cc", copies) + a,
    ]
    assert link.counts.dropped == {"visited": 1}


async def test_entries_of_another_version_are_written_from_the_next_read_on() -> None:
    """As for a time that goes into a header."""
    rewriter = FirstHop()
    link = await Link.made(rewriter=rewriter)
    await link.deliver(Sent(1, body=b"b"))
    rewriter.version = 7
    await link.deliver(Sent(2, body=b"b"))
    found = [Properties.read(got.properties).raw_headers[4:] for got in link.published()]
    assert found == [entry_of("key"), entry_of("key", version=7)]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("properties", [Properties(0, ()), with_table(("CC", fields.text("x"))), with_table()])
async def test_a_message_may_be_left_as_it_is(properties: Properties, body: bytes) -> None:
    link = await Link.made(rewriter=Untouched())
    await link.deliver(Sent(1, properties=properties, body=body))
    [got] = link.published()
    assert got.properties == properties.write()


@pytest.mark.parametrize("body", BODIES)
async def test_properties_are_replaced_and_all_others_kept(body: bytes) -> None:
    values = (encode("delivery_mode", 2), encode("content_type", "text/plain"), encode("timestamp", 7))
    link = await Link.made(rewriter=Untouched(PropertyChanges(values, users=frozenset())))
    given = [encode("delivery_mode", 1), encode("priority", 9), encode("user_id", "me"), encode("app_id", "a")]
    flags = sum(flag for flag, _ in given) | HEADERS
    headers = with_table(("k", fields.text("v"))).raw_headers
    sent = Properties(flags, tuple(sorted([*given, (HEADERS, headers)], reverse=True)))
    await link.deliver(Sent(1, properties=sent, body=body), Sent(2, body=body))
    first, second = (Properties.read(got.properties) for got in link.published())
    kept = dict(given) | dict(values) | {HEADERS: headers}
    del kept[USER_ID]
    assert dict(first.values) == kept
    assert dict(second.values) == dict(values)


@pytest.mark.parametrize(("users", "kept"), [(None, b"ab"), (frozenset(), b""), (frozenset({b"b"}), b"b")])
async def test_a_user_id_goes_along_only_where_the_broker_takes_it(users: frozenset[bytes] | None, kept: bytes) -> None:
    link = await Link.made(rewriter=FirstHop(users=users))
    sent = [Properties(USER_ID, (encode("user_id", user),)) for user in ("a", "b")]
    await link.deliver(*(Sent(tag, properties=each, body=b"b") for tag, each in enumerate(sent, start=1)))
    found = [Properties.read(got.properties).get(USER_ID) or b"\0" for got in link.published()]
    assert b"".join(user[1:] for user in found) == kept


def test_properties_have_bytes_by_their_names() -> None:
    assert encode("priority", 9) == (0x0800, b"\x09")
    assert encode("expiration", "60") == (0x0100, b"\x0260")
    assert encode("timestamp", 1) == (0x0040, bytes(7) + b"\1")
    assert FLAGS["cluster_id"] == 0x0004
    for name, value in (("priority", 256), ("priority", "9"), ("app_id", 1), ("headers", "x"), ("type", "x" * 256)):
        with pytest.raises(CodecError):
            encode(name, value)


def test_an_address_has_two_names_and_nothing_else() -> None:
    prepared = Prepared(Untouched(), Destination(), number=1)
    assert all(map(prepared.add, (b"\0\0", b"\1e\2kk")))
    assert not any(map(prepared.add, (b"", b"\0", b"\1e", b"\1e\2k", b"\1e\2kkk", b"\5e\0")))
    assert set(prepared.known) == {b"\0\0", b"\1e\2kk"}


def test_entries_that_vary_are_prepared_but_not_without_end() -> None:
    prepared = Prepared(FirstHop(), Destination(), number=1)
    for number in range(2_000):
        prepared.add(b"\1e\xc8" + b"%0200d" % number)
        assert 0 < prepared.kept <= 256 * 1024
