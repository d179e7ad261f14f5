"""Messages that pass as they are: what belongs to one hop is left out, and whom RabbitMQ wouldn't believe."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from agent.amqp.wire.tables import CodecError
from agent.amqp10 import sections, types
from agent.amqp10.bare import BareMessages, without_foreign_user
from agent.amqp10.types import Value
from tests.unit.amqp10.peer import message


def test_what_counts_at_one_hop_is_left_out() -> None:
    body = sections.section(0x72, Value("map", ())) + message(b"x")
    hop = sections.section(0x71, Value("map", ()))
    header = sections.HEADER.encode(durable=True, ttl=7, delivery_count=2, first_acquirer=True)
    taken = BareMessages().take(header + hop + body)
    assert taken.is_redelivered
    assert taken.body == sections.HEADER.encode(durable=True, ttl=7) + body


@pytest.mark.parametrize(
    "fields", [{}, {"durable": False}, {"durable": True}, {"priority": 0}, {"priority": 4, "ttl": 9}]
)
def test_a_header_says_no_more_than_before(fields: dict[str, object]) -> None:
    """A priority that nobody gave would be one: brokers take 4 for more than none."""
    header = sections.HEADER.encode(**fields)
    assert BareMessages().take(header + message(b"x")).body == header + message(b"x")


def test_the_place_in_a_stream_is_left_out() -> None:
    kept = (Value("symbol", "x-exchange"), Value("string", "x"))
    offset = (Value("symbol", "x-stream-offset"), Value("ulong", 7))
    header, rest = sections.HEADER.encode(durable=True), message(b"x-stream-offset")
    for there, left in (((kept, offset), (kept,)), ((offset,), ()), ((kept,), (kept,))):
        taken = BareMessages().take(header + sections.section(0x72, Value("map", there)) + rest)
        found = sections.find_sections(taken.body)
        assert sections.pairs(taken.body, found.message_annotations) == left
        assert taken.body.startswith(header) and taken.body.endswith(rest)
    many = tuple((Value("symbol", f"x-{number}"), Value("binary", b"b" * 100)) for number in range(100))
    taken = BareMessages().take(sections.section(0x72, Value("map", (*many, offset))) + rest)
    assert sections.pairs(taken.body, sections.find_sections(taken.body).message_annotations) == many
    cut_off = sections.section(0x72, Value("map", (kept, offset)))
    a_list = sections.section(0x72, Value("list", offset))
    for whole in (header + rest, cut_off[:-3], cut_off[:5], cut_off[:4], cut_off[:3], a_list):
        assert BareMessages().take(whole).body == whole


def test_headers_are_remembered_but_not_all() -> None:
    bare = BareMessages()
    for ttl in range(1_000):
        assert bare.take(sections.HEADER.encode(ttl=ttl + 300) + message(b"x")).body.endswith(message(b"x"))


def in_words(section: bytes, symbol: bytes) -> tuple[bytes, ...]:
    """A section with each descriptor that AMQP allows beside the usual one."""
    return (
        b"\x00\x80" + section[2].to_bytes(8) + section[3:],
        b"\x00\xa3" + bytes((len(symbol),)) + symbol + section[3:],
        b"\x00\xb3" + len(symbol).to_bytes(4) + symbol + section[3:],
    )


def test_sections_are_found_by_any_descriptor() -> None:
    headers = in_words(sections.HEADER.encode(durable=True, delivery_count=2), b"amqp:header:list")
    hops = in_words(sections.section(0x71, Value("map", ())), b"amqp:delivery-annotations:map")
    annotations = in_words(sections.section(0x72, Value("map", ())), b"amqp:message-annotations:map")
    owns = in_words(properties(ID, types.encode(Value("binary", b"other")), TO), b"amqp:properties:list")
    for header, hop, annotation, own in zip(headers, hops, annotations, owns, strict=True):
        rest = annotation + own + message(b"x")
        taken = BareMessages().take(header + hop + rest)
        assert taken.is_redelivered
        assert taken.body == sections.HEADER.encode(durable=True) + rest
        passed = without_foreign_user(taken.body, b"u")
        found = sections.find_sections(passed)
        assert sections.properties(passed, found)["user_id"] is None
        assert passed.endswith(TO + message(b"x"))
        assert passed.startswith(sections.HEADER.encode(durable=True) + annotation)


@pytest.mark.parametrize(
    "whole", [b"\x00\x53\x10\x45", b"\x00\xa3\x01x\x45", b"\x00\xa3\x10amqp:header:list", b"\x00\x80", b"x"]
)
def test_what_isnt_a_section_is_left_to_the_peer(whole: bytes) -> None:
    assert BareMessages().take(whole).body == without_foreign_user(whole, b"u") == whole


def properties(*items: bytes) -> bytes:
    return b"\x00\x53\x73" + types.encode_list(items)


ID, TO, NULL = types.encode(Value("string", "id")), types.encode(Value("string", "to")), b"\x40"
LARGE = b"\xd0\x00\x4c\x4b\x44\x00\x4c\x4b\x40" + NULL * 5_000_000


@pytest.mark.parametrize("user", [NULL, types.encode(Value("binary", b"u"))])
def test_nobody_and_the_user_stay(user: bytes) -> None:
    for whole in (properties(ID, user, TO) + message(b"x"), properties(ID) + message(b"x"), message(b"x"), b""):
        assert without_foreign_user(whole, b"u") == whole


@pytest.mark.parametrize(
    "user",
    [
        types.encode(Value("binary", b"")),
        types.encode(Value("binary", b"u2")),
        types.encode(Value("binary", b"x" * 500)),
        types.encode(Value("string", "u")),  # as RabbitMQ 3 writes it
        LARGE,
    ],
)
def test_a_user_that_isnt_ours_is_left_out(user: bytes) -> None:
    """Its value isn't read, and nothing else is touched."""
    annotations = sections.section(0x72, Value("map", ()))
    began = time.process_time()
    found = without_foreign_user(annotations + properties(LARGE, user, TO) + message(b"x"), b"u")
    content = LARGE + NULL + TO
    head = b"\x00\x53\x73\xd0" + (len(content) + 4).to_bytes(4, "big") + (3).to_bytes(4, "big")
    assert found == annotations + head + content + message(b"x")
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "whole",
    [
        b"\x00\x53\x73",
        b"\x00\x53\x73\xc0",
        b"\x00\x53\x73\xc0\x01\x02",
        b"\x00\x53\x73\xc0\x03\x02\xa1\x05",
        b"\x00\x53\x73\xc0\x02\x02\x40",
        b"\x00\x53\x73\xd0\x00\x00\x00\x04\xff\xff\xff\xff",
        b"\x00\x53\x72\xd1\xff\xff\xff\xff",
    ],
)
def test_properties_that_are_cut_off_are_left_to_the_peer_or_refused(whole: bytes) -> None:
    with suppress(CodecError):
        assert without_foreign_user(whole, b"u") == whole
