"""Deliveries of a stream, in whatever pieces: they go on without the offset, which is noted."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.amqp.data.stream_reader import StreamReader
from agent.amqp.wire import frames, methods
from agent.amqp.wire.properties import HEADERS, Properties
from agent.amqp.wire.tables import encode_table
from agent.core import fields
from agent.core.fields import Table
from agent.core.links.confirms import StreamOffsets
from tests.unit.amqp.wire.link import Link, Sent, feed, turn
from tests.unit.amqp.wire.strategies import names, properties_with, values

NAME = "x-stream-offset"
ENTRY = b"\x0fx-stream-offsetl"
tricky = st.sampled_from(
    [
        fields.text("\x0fx-stream-offsetl12345678"),
        fields.text("\x0fx-stream-offsetl12345678 and more"),
        fields.table(((NAME, fields.long(3)),)),
    ]
)
tables: st.SearchStrategy[Table] = st.lists(
    st.tuples(names.filter(lambda name: name != NAME), tricky | values), max_size=4
).map(tuple)


def with_offset(properties: Properties, offset: int, at: int) -> Properties:
    """As a broker delivers it: the entry is anywhere in the table."""
    table = list(properties.headers)
    at = min(at, len(table))
    raw = encode_table((*table[:at], (NAME, fields.long(offset)), *table[at:]))
    return properties.with_raw_headers(raw)


def as_published(properties: Properties) -> Properties:
    """An empty table is as good as none."""
    empty = properties.flags & HEADERS and properties.raw_headers == b"\0\0\0\0"
    return properties.lacking(HEADERS) if empty else properties


@given(
    drafts=st.lists(st.tuples(properties_with(tables), st.integers(0, 5), st.integers(0, 200)), min_size=1, max_size=6),
    cuts=st.sets(st.integers(1, 2_000), max_size=6),
)
@example(drafts=[(Properties(0, ()), 0, 0)], cuts=set())
def test_what_comes_out_is_what_was_published(drafts: list[tuple[Properties, int, int]], cuts: set[int]) -> None:
    async def live() -> None:
        link, plain = await Link.made(), await Link.made()
        offsets = StreamOffsets()
        link.upstream.inbound.divert(link.out.number, StreamReader(link.out.number, link.source, offsets))
        came, expected = b"", b""
        for tag, (properties, at, size) in enumerate(drafts, start=1):
            body = bytes(size)
            came += link.delivery(Sent(tag, properties=with_offset(properties, 40 + 2 * tag, at), body=body))
            expected += plain.delivery(Sent(tag, properties=as_published(properties), body=body))
        feed(link.upstream, came, sorted(cut for cut in cuts if cut < len(came)))
        feed(plain.upstream, expected)
        await turn()
        assert link.published() == plain.published()
        assert offsets.up_to(len(drafts)) == 40 + 2 * len(drafts)

    asyncio.run(live())


@pytest.mark.parametrize(
    "header",
    [
        b"",
        bytes(12),
        bytes(12) + b"\x80\0",
        bytes(12) + b"\x80\0\xff",
        bytes(12) + b"\x20\0\xff\xff\xff\xff",
        bytes(12) + b"\x20\0" + (20).to_bytes(4, "big") + ENTRY + b"123",
        bytes(12) + b"\x20\0" + (17).to_bytes(4, "big") + ENTRY,
        bytes(12) + b"\x20\0" + (29).to_bytes(4, "big") + b"\x01a?" + ENTRY + b"12345678?",
    ],
)
def test_a_header_that_makes_no_sense_goes_on_as_it_is(header: bytes) -> None:
    """What takes the deliveries judges it."""

    class Inner:
        taken = b""

        def take(self, buffer: bytearray, at: int, end: int) -> int:
            self.taken += bytes(buffer[at:end])
            return end

    inner, offsets = Inner(), StreamOffsets()
    frame = frames.frame(frames.HEADER, 3, header)
    heartbeat = frames.frame(frames.METHOD, 4, methods.BASIC_CANCEL_OK.encode(consumer_tag="t"))
    data = bytearray(frame + heartbeat)
    reader = StreamReader(3, inner, offsets)
    assert reader.take(data, 0, len(data)) == len(frame)
    assert inner.taken == frame
    assert offsets.up_to(1) is None


def test_what_is_cut_off_is_left_for_the_next_read() -> None:
    class Inner:
        def take(self, _: bytearray, at: int, end: int) -> int:
            assert at == end == 0
            return end

    frame = frames.frame(frames.BODY, 3, b"x" * 20)
    for size in range(len(frame)):
        assert StreamReader(3, Inner(), StreamOffsets()).take(bytearray(frame[:size]), 0, size) == 0
