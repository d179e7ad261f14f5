from __future__ import annotations

import time
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.wire.tables import CodecError
from agent.amqp10 import sections
from agent.amqp10.sections import DATA, HEADER, PROPERTIES, SEQUENCE, VALUE, find_sections, section
from agent.amqp10.types import NULL, Value, encode
from tests.unit.amqp10.strategies import lists, maps, scalars, values

EMPTY_MAP = Value("map", ())
PARTS = {
    "header": HEADER.encode(durable=True),
    "delivery_annotations": section(sections.DELIVERY_ANNOTATIONS, EMPTY_MAP),
    "message_annotations": section(sections.MESSAGE_ANNOTATIONS, Value("map", ((Value("symbol", "x-key"), NULL),))),
    "properties": PROPERTIES.encode(subject="s"),
    "application_properties": section(sections.APPLICATION_PROPERTIES, EMPTY_MAP),
    "body": section(DATA, Value("binary", b"x" * 300)),
    "footer": section(sections.FOOTER, EMPTY_MAP),
}
ORDER = tuple(PARTS)
SYMBOLS = {
    "header": "amqp:header:list", "delivery_annotations": "amqp:delivery-annotations:map",
    "message_annotations": "amqp:message-annotations:map", "properties": "amqp:properties:list",
    "application_properties": "amqp:application-properties:map", "body": "amqp:data:binary",
    "footer": "amqp:footer:map",
}  # fmt: skip
bodies = st.one_of(
    st.lists(st.binary(max_size=300).map(lambda raw: Value("binary", raw)), max_size=3).map(lambda all_: (DATA, all_)),
    st.lists(lists(scalars), max_size=3).map(lambda all_: (SEQUENCE, all_)),
    values.map(lambda value: (VALUE, [value])),
)


def by_symbol(name: str, part: bytes) -> bytes:
    return b"\x00" + encode(Value("symbol", SYMBOLS[name])) + part[3:]


def by_long_number(_name: str, part: bytes) -> bytes:
    return b"\x00\x80" + part[2].to_bytes(8, "big") + part[3:]


def as_it_is(_name: str, part: bytes) -> bytes:
    return part


@pytest.mark.parametrize("descriptor", [as_it_is, by_symbol, by_long_number])
@given(present=st.sets(st.sampled_from(ORDER)))
def test_all_that_is_there_is_found_and_the_rest_is_empty(descriptor: Any, present: set[str]) -> None:
    parts = {name: descriptor(name, PARTS[name]) if name in present else b"" for name in ORDER}
    message = b"".join(parts.values())
    found = find_sections(message)
    for name, part in parts.items():
        start, end = getattr(found, name)
        assert message[start:end] == part
    spans = found[:7]
    assert spans[0][0] == 0 and spans[-1][1] == len(message)
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    assert found.body_kind == (DATA if "body" in present else None)


@given(bodies)
def test_a_body_is_all_its_sections(body: tuple[int, list[Value]]) -> None:
    kind, contents = body
    whole = b"".join(section(kind, content) for content in contents)
    message = PARTS["properties"] + whole + PARTS["footer"]
    found = find_sections(message)
    assert message[slice(*found.body)] == whole
    assert found.body_kind == (kind if contents else None)
    assert list(sections.values(message, found.body)) == contents


@given(st.lists(maps(scalars), min_size=4, max_size=4))
def test_maps_are_pairs(contents: list[Value]) -> None:
    codes = (
        sections.DELIVERY_ANNOTATIONS, sections.MESSAGE_ANNOTATIONS, sections.APPLICATION_PROPERTIES, sections.FOOTER
    )  # fmt: skip
    message = b"".join(map(section, codes, contents))
    found = find_sections(message)
    spans = (found.delivery_annotations, found.message_annotations, found.application_properties, found.footer)
    assert [sections.pairs(message, span) for span in spans] == [content.value for content in contents]


def test_absent_fields_are_none() -> None:
    found = find_sections(b"")
    assert found == (*[(0, 0)] * 7, None)
    assert sections.header(b"", found) == {
        "durable": None, "priority": None, "ttl": None, "first_acquirer": None, "delivery_count": 0
    }  # fmt: skip
    assert set(sections.properties(b"", found).values()) == {None}
    assert sections.pairs(b"", found.footer) == ()
    mine = sections.header(b"", found)
    assert mine is not sections.header(b"", found)


def test_properties_have_their_names() -> None:
    message = PROPERTIES.encode(message_id=Value("uuid", bytes(16)), user_id=b"guest", creation_time=5)
    found = sections.properties(message, find_sections(message))
    assert (found["message_id"], found["user_id"], found["creation_time"]) == (Value("uuid", bytes(16)), b"guest", 5)


@pytest.mark.parametrize("first", ORDER)
@pytest.mark.parametrize("second", ORDER)
def test_order_and_repetition_are_refused_by_name(first: str, second: str) -> None:
    message = PARTS[first] + PARTS[second]
    if ORDER.index(first) < ORDER.index(second) or first == second == "body":
        find_sections(message)
        return
    with pytest.raises(CodecError, match=SYMBOLS[second]):
        find_sections(message)


KINDS = {kind: section(kind, content) for kind, content in {
    DATA: Value("binary", b""), SEQUENCE: Value("list", ()), VALUE: NULL,
}.items()}  # fmt: skip


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_a_body_is_of_one_kind_and_one_value(first: int, second: int) -> None:
    message = KINDS[first] + KINDS[second]
    if first == second != VALUE:
        assert find_sections(message).body == (0, len(message))
        return
    with pytest.raises(CodecError, match="repeated"):
        find_sections(message)


def test_no_body_follows_a_footer() -> None:
    with pytest.raises(CodecError, match="data"):
        find_sections(PARTS["body"] + PARTS["footer"] + PARTS["body"])


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        ("005379 45", "section 121"),
        ("00 a301 78 45", "section by a symbol"),
        ("00 44 45", "section 0"),
        ("00 80 0000000000000079 45", "section 121"),
        ("00 41 45", "0x0041"),
        ("00 52 75 a000", "0x0052"),
        ("00 c0 01 00 45", "0x00c0"),
        ("40", "0x40"),
        ("01 53 75 a000", "0x0153"),
        ("00", "0x00"),
        ("0053", "cut off"),
        ("005375", "cut off"),
        ("005375 a1 00", "data.*0xa1"),
        ("005370 c1 0100", "header.*0xc1"),
        ("005372 45", "message-annotations.*0x45"),
        ("005375 a0 02 00", "cut off"),
        ("005375 b0 ffffffff", "cut off"),
        ("005377 00", "cut off"),
        ("005377 01", "0x01"),
        ("00 a3ff", "cut off"),
    ],
)
def test_what_is_no_section_is_refused_by_name(message: str, wrong: str) -> None:
    with pytest.raises(CodecError, match=wrong):
        find_sections(bytes.fromhex(message))


def test_sections_of_a_body_are_counted() -> None:
    most = KINDS[DATA] * sections.MAX_BODY_SECTIONS
    assert find_sections(most).body == (0, len(most))
    with pytest.raises(CodecError, match="10000 sections"):
        find_sections(most + KINDS[DATA])


def test_every_cut_is_refused_or_between_sections() -> None:
    message = b"".join(PARTS.values())
    ends = {end for _, end in find_sections(message)[:7]}
    for length in range(1, len(message)):
        if length in ends:
            find_sections(message[:length])
            continue
        with pytest.raises(CodecError):
            find_sections(message[:length])


@given(
    st.lists(st.sampled_from([*PARTS.values(), *KINDS.values()]), max_size=5).map(b"".join) | st.binary(max_size=40),
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=3),
)
def test_garbage_is_sections_or_an_error(message: bytes, changes: list[tuple[int, int]]) -> None:
    garbage = bytearray(message)
    for at, byte in changes:
        if garbage:
            garbage[at % len(garbage)] = byte
    began = time.process_time()
    with suppress(CodecError):
        read_all(bytes(garbage))
    assert time.process_time() - began < 1


def read_all(message: bytes) -> None:
    found = find_sections(message)
    sections.header(message, found)
    sections.properties(message, found)
    for span in found[:7]:
        list(sections.values(message, span))
    for span in (found.delivery_annotations, found.message_annotations, found.application_properties, found.footer):
        sections.pairs(message, span)
