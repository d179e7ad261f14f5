"""Whatever comes, in whatever pieces: what goes out, byte for byte, and what is settled."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.data.splice import WHOLE
from agent.amqp.wire import frames, methods
from agent.amqp.wire.properties import HEADERS, USER_ID, Properties
from agent.amqp.wire.tables import encode_table
from agent.core import fields
from agent.core.fields import Table
from agent.core.model import AckMode
from agent.core.rules import hops
from agent.core.rules.hops import RECEIVED_FROM, Site, Verdict, received_entry
from agent.errors import TransientError
from tests.unit.amqp.wire.link import EXCHANGE, HERE, THERE, URI, Got, Link, Sent, Settled, feed, turn, with_table
from tests.unit.amqp.wire.strategies import names, properties_with, scalars, values
from tests.unit.core.hop_rules import judge

MARK = b"\x0fx-received-from"
FRAME_MAX = st.sampled_from([4096, 5000, 8192, 131_072])

sites = st.builds(Site, st.sampled_from([None, "here", "there", "far"]), st.sampled_from(["v", "w"]))
hop = st.builds(
    lambda site, redelivered: received_entry("amqp://x", "x", redelivered=redelivered, upstream=site),
    sites,
    st.booleans(),
)
ways = st.lists(hop, max_size=3).map(lambda found: fields.array(*found))
forged = st.one_of(ways, st.lists(hop | values, max_size=3).map(lambda found: fields.array(*found)), values)
earlier_invalid = st.one_of(values, st.builds(lambda value: fields.table(((RECEIVED_FROM, value),)), values))
special = st.one_of(
    st.tuples(st.just(RECEIVED_FROM), forged),
    st.tuples(st.just("x-invalid-headers"), earlier_invalid),
    st.tuples(names, st.just(fields.text("a header's \x0fx-received-from in another's value"))),
    st.tuples(names, ways.map(lambda way: fields.table(((RECEIVED_FROM, way),)))),
    st.tuples(st.sampled_from(["CC", "BCC"]), st.just(fields.array(fields.text("copy")))),
    st.tuples(names, st.integers(3_000, 5_000).map(lambda size: fields.text("x" * size))),
    st.tuples(names, values),
    st.tuples(names, scalars),
)
headers: st.SearchStrategy[Table] = st.lists(special, max_size=4).map(tuple)
bodies = st.one_of(
    st.just(0),
    st.integers(0, 50),
    st.integers(4096 * 1 - 10, 4096 + 10),
    st.integers(0, 20_000),
    st.sampled_from([131_072 - 8 + by for by in (-1, 0, 1)]),
).map(lambda size: bytes(range(251)) * (size // 251) + bytes(range(size % 251)))
drafts = st.builds(
    Sent,
    tag=st.just(0),
    key=st.text(st.characters(codec="utf-8"), max_size=60),
    properties=properties_with(headers),
    body=bodies,
    redelivered=st.booleans(),
)
NOISE = ("none", "elsewhere", "heartbeat", "cancel")


@dataclass(frozen=True)
class Setting:
    ack_mode: AckMode
    max_hops: int
    trust_user_id: bool
    frame_max: tuple[int, int]
    channels: tuple[int, int]


@dataclass(frozen=True)
class Expected:
    """What is to become of a message: published so, or why not."""

    got: Got | None
    dropped: str = ""
    unfit: str = ""


def expected(message: Sent, setting: Setting) -> Expected:
    """By the model: everything decoded, judged and encoded again."""
    table = message.properties.headers
    verdict = judge(table, setting.max_hops, HERE)
    if verdict is not Verdict.FORWARD:
        return Expected(None, dropped=verdict.value)
    kept = message.properties if setting.trust_user_id else message.properties.lacking(USER_ID)
    entry = received_entry(URI, EXCHANGE, redelivered=message.redelivered, upstream=THERE)
    raw = kept.with_raw_headers(encode_table(hops.with_entry(table, RECEIVED_FROM, entry))).write()
    if 12 + len(raw) + 8 > setting.frame_max[1]:
        return Expected(None, unfit="headers_too_large")
    return Expected(Got(EXCHANGE, message.key, True, raw, message.body))


def noise(kind: str, link: Link) -> bytes:
    """What else a broker may say between two messages."""
    match kind:
        case "elsewhere":
            other = 40
            return frames.frame(frames.METHOD, other, methods.BASIC_DELIVER.encode(delivery_tag=1)) + frames.content(
                other, b"\0\0", b"other", 4096
            )
        case "heartbeat":
            return frames.HEARTBEAT_FRAME
        case "cancel":
            return frames.frame(frames.METHOD, link.out.number, methods.BASIC_CANCEL.encode(consumer_tag="t"))
        case _:
            return b""


settings_of_links = st.builds(
    Setting,
    st.sampled_from(AckMode),
    st.integers(1, 3),
    st.booleans(),
    st.tuples(FRAME_MAX, FRAME_MAX),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
)


@given(
    st.lists(st.tuples(drafts, st.sampled_from(NOISE)), max_size=6),
    st.lists(st.integers(1, 40) | st.integers(1, 40_000), max_size=60),
    settings_of_links,
)
def test_what_comes_goes_on_with_the_entry_and_nothing_else_changed(
    drafted: list[tuple[Sent, str]], cuts: list[int], setting: Setting
) -> None:
    asyncio.run(_goes_on(drafted, cuts, setting))


async def _goes_on(drafted: list[tuple[Sent, str]], cuts: list[int], setting: Setting) -> None:
    ack_mode = setting.ack_mode
    link = await Link.made(
        ack_mode=ack_mode,
        max_hops=setting.max_hops,
        trust_user_id=setting.trust_user_id,
        frame_max=setting.frame_max,
        channels=setting.channels,
    )
    messages = [replace(draft, tag=tag) for tag, (draft, _) in enumerate(drafted, start=1)]
    cancelled: list[str] = []
    link.out.on_cancel = cancelled.append
    both = zip(messages, drafted, strict=True)
    come = b"".join(noise(kind, link) + link.delivery(message) for message, (_, kind) in both)
    feed(link.upstream, come, cuts)
    await turn()

    fates = [expected(message, setting) for message in messages]
    published = [fate.got for fate in fates if fate.got is not None]
    assert link.published() == published
    counts = link.counts
    assert counts.dropped == tally(fate.dropped for fate in fates)
    assert counts.unpublishable == tally(fate.unfit for fate in fates)
    assert counts.bytes == sum(len(got.body) for got in published)
    assert len(cancelled) == [kind for _, kind in drafted].count("cancel")
    assert not link.upstream.closed.done()
    in_flight = len(published) if ack_mode is AckMode.ON_CONFIRM else 0
    assert link.target.confirms.in_flight == in_flight
    assert counts.forwarded == len(published) - in_flight

    # Confirms are numbered like publishes, and once all are in nothing is left but what goes back.
    for number in range(1, in_flight + 1):
        await link.answer(methods.BASIC_ACK, delivery_tag=number)
    link.clock.pass_by(10)
    await turn()
    assert counts.forwarded == len(published)
    settled = Settled.read(link, len(messages))
    if ack_mode is AckMode.NO_ACK:
        assert not settled.acknowledged | settled.returned
    else:
        assert settled.returned == {m.tag for m, fate in zip(messages, fates, strict=True) if fate.unfit}
        assert settled.acknowledged | settled.returned == {message.tag for message in messages}


def tally(reasons: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for reason in reasons:
        if reason:
            found[reason] = found.get(reason, 0) + 1
    return found


def with_raw(data: bytes) -> Properties:
    return Properties(HEADERS, ((HEADERS, len(data).to_bytes(4, "big") + data),))


async def test_the_entry_comes_first_and_the_rest_stays_where_it_is() -> None:
    link = await Link.made()
    await link.deliver(Sent(1, properties=with_table(("z", fields.long(1)), ("a", fields.text("x"))), body=b"b"))
    [got] = link.published()
    table = Properties.read(got.properties).headers
    assert [name for name, _ in table] == [RECEIVED_FROM, "z", "a"]
    assert [name for name, _ in table[0][1].value[0].value] == [
        "uri",
        "exchange",
        "redelivered",
        "cluster-name",
        "vhost",
    ]


async def test_of_two_headers_of_the_same_name_the_first_counts() -> None:
    link = await Link.made(max_hops=2)
    way = fields.array(received_entry("u", "x", redelivered=False, upstream=Site("far", "v")))
    here = fields.array(received_entry("u", "x", redelivered=False, upstream=HERE))
    await link.deliver(
        Sent(1, properties=with_table((RECEIVED_FROM, way), (RECEIVED_FROM, here))),
        Sent(2, properties=with_table((RECEIVED_FROM, here), (RECEIVED_FROM, way))),
    )
    [got] = link.published()
    table = Properties.read(got.properties).headers
    assert [len(value.value) for _, value in table] == [2, 1]
    assert table[1] == (RECEIVED_FROM, here)
    assert link.counts.dropped == {"visited": 1}


@pytest.mark.parametrize("tag", ["A", "F"])
@pytest.mark.parametrize("first", [True, False])
async def test_headers_nested_deeper_than_any_stack(tag: str, first: bool) -> None:
    deep = b"V"
    for _ in range(5_000):
        inside = deep if tag == "A" else b"\x01k" + deep
        deep = tag.encode() + len(inside).to_bytes(4, "big") + inside
    received = MARK + b"A" + (len(deep)).to_bytes(4, "big") + deep
    other = b"\x01o" + deep
    link = await Link.made(max_hops=2)
    await link.deliver(Sent(1, properties=with_raw(received + other if first else other + received)))
    [got] = link.published()
    assert got.properties.endswith(deep if not first else other)
    assert got.properties.count(deep) == 2


@pytest.mark.parametrize(
    "raw",
    [
        MARK + b"Z",
        MARK + b"A\xff\xff\xff\xff",
        MARK + b"A\0\0\0\x02Z!",
        MARK + b"A\0\0\0\0\x05ab",
        MARK,
        b"\x01kS\0\0\0\x10" + MARK + b"\x09",
        b"\x01kZ" + MARK + b"A\0\0\0\0",
    ],
)
async def test_headers_that_nobody_can_read_go_back_and_what_follows_flows_on(raw: bytes) -> None:
    link = await Link.made()
    await link.deliver(Sent(1, body=b"a"), Sent(2, properties=with_raw(raw), body=b"b" * 5000), Sent(3, body=b"c"))
    first, second = link.published()[0], link.target.confirms.in_flight
    assert first.body == b"a"
    fine = len(raw) > 20 and raw.startswith(MARK + b"A\0\0\0\0")
    assert (second, link.counts.unpublishable) == ((3, {}) if fine else (2, {"unreadable": 1}))
    assert not link.upstream.closed.done()


@pytest.mark.parametrize("flags", [0x8000, 0x4000, 0x2000, 0xFFFC, 0x0010])
async def test_properties_that_are_cut_off_go_back(flags: int) -> None:
    link = await Link.made()
    await link.deliver(Sent(1, properties=Properties(flags, ()), body=b"a"), Sent(2))
    assert [got.body for got in link.published()] == [b""]
    assert link.counts.unpublishable == {"unreadable": 1}


BEHIND = Properties(0x10C4, ((0x1000, b"\2"), (0x80, b"\2id"), (0x40, bytes(8)), (0x04, b"\1c"))).write()


@pytest.mark.parametrize("body", [b"", b"b", bytes(5000)])
@pytest.mark.parametrize(
    "properties",
    [
        BEHIND[:-1],
        BEHIND + b"\0",
        BEHIND[:3] + b"\xff" + BEHIND[4:],
        b"\x10\0\2z",
        b"\0\0z",
        b"\x20\0\0\0\0\x02",
        b"\x20\0\xff\xff\xff\xff",
        b"\x20\0\0\0\0\0z",
        b"\xa0\0\xff\0\0\0\0",
    ],
)
async def test_properties_that_do_not_add_up_are_not_published(properties: bytes, body: bytes) -> None:
    link = await Link.made()
    whole = link.delivery(Sent(1, body=body))
    bad = link.delivery(Sent(2, body=body)).replace(
        b"\2\0\1\0\0\0\x0e", b"\2\0\1" + (12 + len(properties)).to_bytes(4, "big")
    )
    flags = bad.index(frames.BASIC_HEADER.pack(60, 0, len(body))) + 12
    feed(link.upstream, whole + bad[:flags] + properties + bad[flags + 2 :] + link.delivery(Sent(3, body=body)))
    await turn()
    assert [got.body for got in link.published()] == [body, body]
    assert link.counts.unpublishable == {"unreadable": 1}
    assert not link.upstream.closed.done()


@pytest.mark.parametrize("body", [b"", b"b", bytes(5000)])
@pytest.mark.parametrize(("class_id", "weight"), [(61, 0), (60, 1), (0, 0)])
async def test_a_header_of_another_class_is_not_published(class_id: int, weight: int, body: bytes) -> None:
    link = await Link.made()
    fine, other = (frames.BASIC_HEADER.pack(ids, by, len(body)) for ids, by in ((60, 0), (class_id, weight)))
    messages = [link.delivery(Sent(tag, body=body)) for tag in (1, 2, 3)]
    feed(link.upstream, messages[0] + messages[1].replace(fine, other) + messages[2])
    await turn()
    assert [got.body for got in link.published()] == [body, body]
    assert link.counts.unpublishable == {"unreadable": 1}


async def test_properties_that_lead_out_of_the_buffer() -> None:
    """The frame is the last that fits, so that what its lengths promise isn't even there to be looked at."""
    link = await Link.made()
    room = len(link.upstream.get_buffer(-1))
    empty = link.delivery(Sent(1, properties=Properties(0x8000, ((0x8000, b"\xff"),)), body=b"b"))
    filler = frames.HEARTBEAT_FRAME * ((room - len(empty)) // len(frames.HEARTBEAT_FRAME))
    feed(link.upstream, filler + empty)
    await turn()
    assert link.counts.unpublishable == {"unreadable": 1}
    assert not link.upstream.closed.done()


async def test_a_body_that_no_broker_takes_is_not_begun() -> None:
    link = await Link.made()
    header = frames.frame(frames.HEADER, link.out.number, frames.BASIC_HEADER.pack(60, 0, 2**40) + b"\0\0")
    feed(link.upstream, frames.frame(frames.METHOD, link.out.number, Sent(1).deliver) + header)
    feed(link.upstream, frames.frame(frames.BODY, link.out.number, bytes(100_000)) * 20)
    await turn()
    assert link.published() == []
    assert link.counts.unpublishable == {"too_large": 1}


@pytest.mark.parametrize("body", [b"", b"b"])
async def test_a_gap_in_delivery_tags_ends_the_connection(body: bytes) -> None:
    """Acknowledgements wait for each tag: for one that never comes, forever."""
    link = await Link.made()
    await link.deliver(Sent(1, body=body), Sent(3, body=body))
    assert "delivery tag 3 came where 2 was due" in str(link.upstream.closed.result())


async def test_publishes_are_kept_for_keys_that_repeat_but_not_without_end() -> None:
    link = await Link.made()
    for tag in range(1, 3_001):
        await link.deliver(Sent(tag, key=f"{tag:0255}", body=b"b"))
        assert 0 < link.source.kept <= 256 * 1024
    assert [got.key for got in link.published()] == [f"{tag:0255}" for tag in range(1, 3_001)]


async def test_a_header_that_is_too_long_to_be_judged_goes_back() -> None:
    link = await Link.made(frame_max=(0, 0))
    way = fields.array(fields.text("x" * 300_000))
    await link.deliver(Sent(1, properties=with_table((RECEIVED_FROM, way))), Sent(2))
    assert len(link.published()) == 1
    assert link.counts.unpublishable == {"headers_too_large": 1}


async def test_flags_that_mean_nothing_pass() -> None:
    """3.10 lets them in and gives them out again."""
    link = await Link.made()
    await link.deliver(*(Sent(bits, properties=Properties(bits, ())) for bits in (1, 2, 3)))
    assert [Properties.read(got.properties).flags for got in link.published()] == [HEADERS | bits for bits in (1, 2, 3)]


@pytest.mark.parametrize("trust_user_id", [True, False])
async def test_a_user_id_passes_where_it_is_trusted(trust_user_id: bool) -> None:
    link = await Link.made(trust_user_id=trust_user_id)
    given = Properties(USER_ID, ((USER_ID, b"\x05guest"),))
    await link.deliver(Sent(1, properties=given))
    [got] = link.published()
    assert bool(Properties.read(got.properties).flags & USER_ID) is trust_user_id


@pytest.mark.parametrize("size", [WHOLE, WHOLE + 1])
async def test_nothing_of_a_message_is_published_before_all_is_here_unless_it_is_large(size: int) -> None:
    link = await Link.made()
    body = bytes(size)
    data = link.delivery(Sent(1, body=b"small")) + link.delivery(Sent(2, body=body))
    feed(link.upstream, data[:-1])
    await turn()
    assert link.into.is_midway is (size > WHOLE)
    if size <= WHOLE:
        assert [got.body for got in link.published()] == [b"small"]
        assert link.target.confirms.in_flight == 1
    feed(link.upstream, data[-1:])
    await turn()
    assert not link.into.is_midway
    bodies = [got.body for got in link.published()]
    assert bodies == ([body] if size <= WHOLE else [b"small", body])
    assert link.target.confirms.in_flight == 2


async def test_a_source_that_dies_midway_leaves_the_channel_as_it_is() -> None:
    """A method between body frames would cost the connection of all other links."""
    link = await Link.made()
    data = link.delivery(Sent(1, body=bytes(3 * WHOLE)))
    feed(link.upstream, data[: 2 * WHOLE])
    await turn()
    link.down.taken()
    link.upstream.connection_lost(None)
    await link.into.close()
    assert link.into.closed.done()
    assert link.down.taken() == b""
    assert link.downstream.is_spoiled and not link.downstream.closed.done()
    assert link.into.number not in {number_of_another(link) for _ in range(3_000)}


def number_of_another(link: Link) -> int:
    channel = link.downstream.begin_channel()
    channel.end(TransientError("closed again"))
    return channel.number
