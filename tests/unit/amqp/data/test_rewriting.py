"""What kinds of links and operators' rules may change of messages, and where these go, byte for byte."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.data import header_table
from agent.amqp.data.header_table import Names
from agent.amqp.data.held import HeldBuffers
from agent.amqp.data.prepared import Prepared
from agent.amqp.data.quarantined import Room
from agent.amqp.data.rewriting import Delivery, Destination, PropertyChanges, Rewriter, Untouched, with_rules
from agent.amqp.wire import methods
from agent.amqp.wire.properties import FLAGS, HEADERS, USER_ID, Properties, encode
from agent.amqp.wire.tables import CodecError, encode_table, short_string
from agent.core import fields
from agent.core.fields import Field, Table
from agent.core.rules.headers import prefix_of
from agent.core.rules.hops import RECEIVED_FROM, received_entry
from agent.links.exchange.received_from import ReceivedFromHeader
from agent.links.queue.visits import VisitHeaders
from agent.links.shovel.headers import AddedAnnotations, ShovelHeaders
from tests.unit.amqp.wire.link import EXCHANGE, HERE, THERE, URI, Got, Link, Sent, feed, turn, with_table
from tests.unit.amqp.wire.strategies import properties_with, scalars, values

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


LIMIT: Final = 2**25
KINDS: Final[dict[str, Callable[[], Rewriter]]] = {
    "exchange": lambda: ReceivedFromHeader(
        URI, EXCHANGE, upstream=THERE, downstream=HERE, max_hops=2, trust_user_id=False
    ),
    "queue": lambda: VisitHeaders(URI, "work", trust_user_id=False),
    "shovel": lambda: ShovelHeaders(
        fields.table((("shovelled-by", fields.text("here")),)), lambda: 7.0, PropertyChanges()
    ),
    "annotating shovel": lambda: AddedAnnotations(
        {"x-opt-shovelled-by": "here", "x-opt-shovel-type": "dynamic", "x-opt-shovel-name": "s"},
        lambda: 7.0,
        PropertyChanges(),
    ),
    "plain shovel": Untouched,
}

names = st.sampled_from(["a", "ab", "abc", "b", "bé", "trace-id", "trace-state", "x-other", ""])
of_kinds = st.sampled_from([
    (RECEIVED_FROM, fields.array(received_entry("u", "x", redelivered=False, upstream=THERE))),
    (RECEIVED_FROM, fields.text("none")),
    ("x-shovelled-timestamp", fields.long(1)),
    ("x-original-exchange", fields.text("forged")),
    ("CC", fields.array(fields.text("copy"))),
])  # fmt: skip
misleading = st.sampled_from([fields.text("\1a"), fields.text("\x08trace-id"), fields.table((("ab", fields.long(1)),))])
headers: st.SearchStrategy[Table] = st.lists(
    st.one_of(st.tuples(names, scalars), st.tuples(names, values), st.tuples(names, misleading), of_kinds), max_size=5
).map(tuple)
bodies = st.one_of(st.integers(0, 40), st.integers(4_000, 9_000)).map(bytes)
drafts = st.builds(
    Sent,
    tag=st.just(0),
    key=st.sampled_from(["", "key", "other"]),
    properties=properties_with(headers),
    body=bodies,
    redelivered=st.booleans(),
)


@dataclass(frozen=True)
class Rules:
    set: Table
    remove: tuple[str, ...]

    def applied(self, message: Sent) -> Sent:
        """By the model: everything decoded, and encoded again."""
        properties = message.properties
        if not properties.flags & HEADERS and not self.set:
            return message
        kept = tuple(entry for entry in properties.headers if not self._removes(entry[0]))
        return replace(message, properties=properties.with_raw_headers(encode_table((*self.set, *kept))))

    def _removes(self, name: str) -> bool:
        prefixes = [prefix for each in self.remove if (prefix := prefix_of(each)) is not None]
        is_prefixed = any(name.encode().startswith(prefix.encode()) for prefix in prefixes)
        return is_prefixed or name in self.remove or any(name == each for each, _ in self.set)


removed = st.one_of(names, st.sampled_from(["a*", "ab*", "trace-*", "b*", "é*"])).filter(bool)
rules = st.builds(
    Rules,
    st.dictionaries(names.filter(bool), scalars, max_size=3).map(lambda found: tuple(found.items())),
    st.lists(removed, max_size=3).map(tuple),
)


@given(
    st.lists(drafts, max_size=6),
    rules,
    st.sampled_from(sorted(KINDS)),
    st.tuples(*[st.sampled_from([4096, 131_072])] * 2),
    st.lists(st.integers(1, 20_000), max_size=10),
)
def test_a_link_with_rules_does_what_one_without_does_of_messages_that_the_model_has_changed(
    drafted: list[Sent], found: Rules, kind: str, frame_max: tuple[int, int], cuts: list[int]
) -> None:
    asyncio.run(_does(drafted, found, KINDS[kind], frame_max, cuts))


async def _does(
    drafted: list[Sent], found: Rules, kind: Callable[[], Rewriter], frame_max: tuple[int, int], cuts: list[int]
) -> None:
    sent = [replace(draft, tag=tag) for tag, draft in enumerate(drafted, start=1)]
    held = HeldBuffers(LIMIT, Room(LIMIT))
    link = await Link.made(rewriter=with_rules(kind(), found.set, found.remove), frame_max=frame_max, held=held)
    model = await Link.made(rewriter=kind(), frame_max=frame_max)
    feed(link.upstream, b"".join(map(link.delivery, sent)), cuts)
    feed(model.upstream, b"".join(model.delivery(found.applied(message)) for message in sent), cuts)
    await turn()
    published = link.published()
    assert published == model.published()
    assert (link.counts.dropped, link.counts.bytes) == (model.counts.dropped, model.counts.bytes)
    assert link.counts.unpublishable == model.counts.unpublishable
    if not link.counts.dropped and not link.counts.unpublishable:  # what is refused keeps the properties that it had
        kept = [held.moved_out(number) for number in range(1, len(published) + 1)]
        assert [each and each.properties for each in kept] == [message.properties.write() for message in sent]


SECRET, TRACE = ("secret", fields.text("s")), ("trace-id", fields.text("t"))


async def published(rewriter: Rewriter, *sent: Sent) -> list[Got]:
    link = await Link.made(rewriter=rewriter)
    await link.deliver(*sent)
    return link.published()


async def table_of(rules: Rules, *headers: tuple[str, Field], body: bytes = b"b") -> Table:
    rewriter = with_rules(Untouched(), rules.set, rules.remove)
    [got] = await published(rewriter, Sent(1, properties=with_table(*headers), body=body))
    return Properties.read(got.properties).headers


@pytest.mark.parametrize("body", [b"", b"b", bytes(200_000)])
async def test_examples(body: bytes) -> None:
    site = ("site", fields.text("eu"))
    assert await table_of(Rules((site,), ()), TRACE, body=body) == (site, TRACE)
    assert await table_of(Rules((site,), ()), TRACE, ("site", fields.long(1)), SECRET, body=body) == (
        site,
        TRACE,
        SECRET,
    )
    assert await table_of(Rules((), ("secret",)), SECRET, TRACE, SECRET, body=body) == (TRACE,)
    assert await table_of(Rules((), ("trace*",)), TRACE, SECRET, ("trace", SECRET[1]), body=body) == (SECRET,)
    assert await table_of(Rules((SECRET,), ("sec*",)), ("secrets", SECRET[1]), TRACE, body=body) == (SECRET, TRACE)
    kept = (("Secret", SECRET[1]), ("secre", SECRET[1]), ("n", fields.table((SECRET,))), ("v", fields.text("\6secret")))
    assert await table_of(Rules((), ("secret", "secrets*")), *kept, body=body) == kept


async def test_without_rules_nothing_is_in_between() -> None:
    kind = Untouched()
    assert with_rules(kind, (), ()) is kind


async def test_a_message_without_headers_gets_those_that_are_set() -> None:
    [got] = await published(with_rules(Untouched(), (SECRET,), ("a",)), Sent(1, body=b"b"))
    assert Properties.read(got.properties).headers == (SECRET,)
    [got] = await published(with_rules(Untouched(), (), ("a",)), Sent(1, body=b"b"))
    assert got.properties == b"\0\0"


@pytest.mark.parametrize("body", [b"b", bytes(5_000)])
async def test_headers_that_nobody_can_read_go_back_if_a_rule_may_be_about_them(body: bytes) -> None:
    link = await Link.made(rewriter=with_rules(Untouched(), (), ("secret",)))
    raw = [b"\6secretZ", b"\1aZ\6secretV", b"\6secret"]
    unreadable = [Properties(HEADERS, ((HEADERS, len(each).to_bytes(4, "big") + each),)) for each in raw]
    await link.deliver(*(Sent(tag, properties=each, body=body) for tag, each in enumerate(unreadable, start=1)))
    assert (link.published(), link.counts.unpublishable) == ([], {"unreadable": 3})


@pytest.mark.parametrize("body", [b"b", bytes(5_000)])
async def test_headers_that_no_longer_fit_go_back(body: bytes) -> None:
    """What counts is what is left of them once rules have removed some, and set others."""
    link = await Link.made(
        rewriter=with_rules(Untouched(), (("site", fields.text("x" * 2_000)),), ("a",)), frame_max=(131_072, 4096)
    )
    large = fields.text("x" * 2_100)
    await link.deliver(
        Sent(1, properties=with_table(("b", large)), body=body),
        Sent(2, properties=with_table(("a", large)), body=body),
        Sent(3, properties=with_table(("a", large), ("b", large)), body=body),
    )
    assert [got.body for got in link.published()] == [body]
    assert link.counts.unpublishable == {"headers_too_large": 2}


async def test_messages_that_lose_headers_are_forwarded_and_settled_as_all_others() -> None:
    """Among others, one of a read after another."""
    link = await Link.made(rewriter=with_rules(KINDS["exchange"](), (), ("secret",)))
    sent = [
        Sent(tag, properties=with_table(SECRET) if tag % 3 else with_table(TRACE), body=b"b") for tag in range(1, 100)
    ]
    await link.deliver(*sent)
    assert [Properties.read(got.properties).headers[1:] for got in link.published()] == [
        () if tag % 3 else (TRACE,) for tag in range(1, 100)
    ]
    await link.answer(methods.BASIC_ACK, delivery_tag=99, multiple=True)
    assert (link.counts.forwarded, link.counts.bytes, link.counts.taken) == (99, 99, 99)
    assert [dict(method)["delivery_tag"] for method in link.settled()] == [99]


@pytest.mark.parametrize("body", [b"b", bytes(5_000)])
async def test_a_message_that_the_kind_rewrites_loses_its_headers_too(body: bytes) -> None:
    hop = received_entry("u", "x", redelivered=False, upstream=THERE)
    rewriter = with_rules(KINDS["exchange"](), (TRACE,), ("secret",))
    sent = with_table(SECRET, (RECEIVED_FROM, fields.array(hop)), ("a", fields.long(1)))
    [got] = await published(rewriter, Sent(1, properties=sent, body=body))
    table = Properties.read(got.properties).headers
    assert [name for name, _ in table] == ["trace-id", RECEIVED_FROM, "a"]
    assert table[1][1].value[1:] == (hop,)


async def test_what_many_keys_make_of_large_rules_is_bounded_while_nothing_is_confirmed() -> None:
    """What is prepared for each key of a queue link has the headers that are set, four times."""
    limit, count = 2**21, 3_000
    held = HeldBuffers(limit, Room(LIMIT))
    rules = with_rules(KINDS["queue"](), (("large", fields.text("x" * 2_000)),), ())
    link = await Link.made(rewriter=rules, held=held)
    tracemalloc.start()
    try:
        for first in range(1, count, 100):
            await link.deliver(*(Sent(tag, key=f"key {tag}", body=b"b") for tag in range(first, first + 100)))
            link.down.taken()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert link.target.confirms.in_flight == count
    assert held.known(1) is not None and held.moved_out(1) is None, "the oldest had to go"
    assert held.moved_out(count) is not None
    assert grown < 2 * limit + 1_000 * count, "of those that went, a destination is left"
