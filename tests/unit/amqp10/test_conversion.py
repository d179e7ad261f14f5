"""What becomes of messages between AMQP 0-9-1 and AMQP 1.0: the tables of docs/amqp10-conversion.md, case by case."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.amqp.wire.properties import FLAGS, HEADERS, Properties
from agent.amqp.wire.tables import CodecError, decode_table
from agent.amqp10 import sections, types
from agent.amqp10.conversion.message import LARGEST, Converted091, Converted10, to_091, to_10
from agent.amqp10.conversion.values import LARGEST_NESTED, MAX_DEPTH, Loss
from agent.amqp10.sections import FOOTER, MESSAGE_ANNOTATIONS, find_sections
from agent.amqp10.types import NULL, Value, array_of
from agent.core import fields
from agent.core.fields import Field
from tests.unit.amqp.wire import strategies as strategies_091
from tests.unit.amqp10 import strategies
from tests.unit.amqp10.conversion_table import (
    DEATH,
    DIED,
    KEPT,
    LONG,
    NOT_WHOLE,
    TO_091,
    TO_10,
    URN,
    UUID,
    WHOLE,
    application,
    data,
    entries,
    longs,
    noted,
    properties_091,
    properties_10,
    symbol,
    text,
)


def from_10(*parts: bytes) -> Converted091:
    message = b"".join(parts)
    return to_091(message, find_sections(message))


def from_091(properties: bytes, body: bytes = b"m") -> Converted10:
    return to_10(properties, body, b"", b"")


def headers_of(converted: Converted091) -> dict[str, Field]:
    return dict(Properties.read(converted.properties).headers)


def values_091(converted: Converted091) -> dict[str, bytes]:
    """Without the headers."""
    read = Properties.read(converted.properties)
    return {name: value for name, flag in FLAGS.items() if flag != HEADERS and (value := read.get(flag)) is not None}


def pairs_of(converted: Converted10, section: str) -> dict[str, Value]:
    found = find_sections(converted.message)
    return {key.value: value for key, value in sections.pairs(converted.message, getattr(found, section))}


def annotations_of(converted: Converted10) -> dict[str, Value]:
    """Without where it was published."""
    found = pairs_of(converted, "message_annotations")
    return {name: value for name, value in found.items() if name not in {"x-exchange", "x-routing-key"}}


def application_of(converted: Converted10) -> dict[str, Value]:
    return pairs_of(converted, "application_properties")


def values_10(converted: Converted10) -> dict[str, Any]:
    found = sections.properties(converted.message, find_sections(converted.message))
    return {name: value for name, value in found.items() if value is not None}


def body_of(converted: Converted10) -> list[Value]:
    return list(sections.values(converted.message, find_sections(converted.message).body))


@pytest.mark.parametrize(("value", "field", "loss"), TO_091, ids=lambda each: str(each)[:40])
def test_a_value_as_a_header(value: Value, field: Field | None, loss: Loss | None) -> None:
    """Of annotations that begin with x-, too."""
    for part, name in ((application(("k", value)), "k"), (noted(("x-k", value)), "x-k")):
        converted = from_10(part, data())
        assert headers_of(converted) == ({} if field is None else {name: field})
        assert converted.lost == ({loss} if loss else set())


@pytest.mark.parametrize(("field", "value", "loss"), TO_10, ids=lambda each: str(each)[:40])
def test_a_header_as_a_value(field: Field, value: Value | None, loss: Loss | None) -> None:
    for name, read in (("k", application_of), ("x-k", annotations_of)):
        converted = from_091(properties_091([(name, field)]))
        assert read(converted) == ({} if value is None else {name: value})
        assert converted.lost == ({loss} if loss else set())


def test_arrays_and_tables() -> None:
    """Application properties may be neither: they go along in an annotation, from where they come back."""
    array = fields.array(Field("S", "a"), Field("V", None), fields.array())
    table = fields.table((("k", Field("I", 1)), ("é", Field("t", True))))
    headers = [("x-array", array), ("x-table", table), ("array", array), ("table", table)]
    converted = from_091(properties_091(headers))
    as_list = Value("list", (text("a"), NULL, Value("list", ())))
    as_map = Value("map", ((symbol("k"), Value("int", 1)), (text("é"), Value("boolean", True))))
    assert annotations_of(converted) == {
        "x-array": as_list,
        "x-table": as_map,
        "x-opt-headers": Value("map", ((text("array"), as_list), (text("table"), as_map))),
    }
    assert (application_of(converted), converted.lost) == ({}, set())
    assert headers_of(from_10(converted.message)) == dict(headers)


def test_times_at_the_end_of_time() -> None:
    last = (2**63 - 1) // 1000
    converted = from_091(properties_091([("k", Field("T", last))], timestamp=last))
    assert application_of(converted) == {"k": Value("timestamp", last * 1000)}
    assert values_10(converted) == {"creation_time": last * 1000}


# Properties


def test_properties_of_0_9_1() -> None:
    properties = properties_091(
        content_type="text/plain",
        content_encoding="gzip",
        delivery_mode=2,
        priority=7,
        correlation_id="c",
        reply_to="replies to/é",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="app",
    )
    converted = to_10(properties, b"body", b"x", b"k")
    found = find_sections(converted.message)
    assert dict(sections.header(converted.message, found)) | {"first_acquirer": None} == {
        "durable": True,
        "priority": 7,
        "ttl": 60_000,
        "first_acquirer": None,
        "delivery_count": 0,
    }
    assert values_10(converted) == {
        "message_id": text("m"),
        "user_id": b"guest",
        "reply_to": text("/queues/replies%20to%2F%C3%A9"),
        "correlation_id": text("c"),
        "content_type": "text/plain",
        "content_encoding": "gzip",
        "creation_time": 1_700_000_000_000,
        "group_id": "app",
    }
    assert pairs_of(converted, "message_annotations") == {
        "x-exchange": text("x"),
        "x-routing-key": text("k"),
        "x-basic-type": text("t"),
    }
    assert body_of(converted) == [Value("binary", b"body")]
    back = from_10(converted.message)
    assert (back.properties, back.body) == (properties, b"body")
    assert (back.exchange, back.routing_key, back.is_redelivered) == (b"x", b"k", False)
    assert not converted.lost | back.lost


def test_no_properties() -> None:
    converted = from_091(b"\0\0", b"")
    found = find_sections(converted.message)
    assert not sections.header(converted.message, found)["durable"]
    assert found.properties[0] == found.properties[1]
    assert found.application_properties[0] == found.application_properties[1]
    back = from_10(converted.message)
    assert (values_091(back), back.body) == ({"delivery_mode": b"\x01"}, b"")


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"content_type": "é"}, Loss.PROPERTY),
        ({"message_id": "\udcff"}, Loss.PROPERTY),
        ({"type": "\udcff"}, Loss.PROPERTY),
        ({"app_id": "\udcff"}, Loss.PROPERTY),
        ({"timestamp": 2**63}, Loss.TIME),
        ({"expiration": "soon"}, Loss.EXPIRATION),
        ({"expiration": str(2**32)}, Loss.EXPIRATION),
        ({"expiration": "-1"}, Loss.EXPIRATION),
        ({"expiration": "²"}, Loss.EXPIRATION),
        ({"cluster_id": "c"}, Loss.CLUSTER_ID),
    ],
)
def test_properties_that_amqp_1_0_cannot_hold(properties: dict[str, str | int], expected: Loss) -> None:
    converted = from_091(properties_091((), **properties))
    assert converted.lost == {expected}
    assert (values_10(converted), annotations_of(converted)) == ({}, {})


def test_an_empty_header() -> None:
    """Fields that are absent aren't those of AMQP's defaults."""
    assert values_091(from_10(sections.HEADER.encode(), data())) == {}
    assert values_091(from_10(data())) == {}
    assert values_091(from_10(sections.HEADER.encode(durable=False), data())) == {"delivery_mode": b"\x01"}
    full = sections.HEADER.encode(durable=True, priority=4, ttl=0, first_acquirer=True, delivery_count=1)
    assert values_091(from_10(full, data())) == {
        "delivery_mode": b"\x02",
        "priority": b"\x04",
        "expiration": b"\x010",
    }
    assert from_10(full, data()).is_redelivered


@pytest.mark.parametrize(("properties", "expected"), WHOLE, ids=lambda each: str(each)[:40])
def test_properties_that_0_9_1_has(properties: dict[str, Any], expected: dict[str, bytes]) -> None:
    converted = from_10(properties_10(**properties), data())
    assert (values_091(converted), headers_of(converted), converted.lost) == (expected, {}, set())
    assert values_10(to_10(converted.properties, b"", b"", b"")) == properties


@pytest.mark.parametrize(("properties", "expected", "headers"), NOT_WHOLE, ids=lambda each: str(each)[:40])
def test_properties_that_a_header_keeps(
    properties: dict[str, Any], expected: dict[str, bytes], headers: dict[str, Field]
) -> None:
    """All but the user, whom only the property of that name may tell."""
    sent = properties_10(**properties, user_id=b"u")
    converted = from_10(sent, data())
    assert values_091(converted) == {**expected, "user_id": b"\x01u"}
    found = headers_of(converted)
    kept = found.pop(KEPT).value.encode("utf-8", "surrogateescape")
    assert (found, converted.lost) == (headers, set())
    assert kept == properties_10(**properties)
    back = from_091(converted.properties)
    assert values_10(back) == {**properties, "user_id": b"u"}
    assert (annotations_of(back), back.lost) == ({}, set())


def test_a_kept_user_is_nobody() -> None:
    kept = properties_10(user_id=b"forged", subject="s").decode("utf-8", "surrogateescape")
    assert values_10(from_091(properties_091([(KEPT, Field("S", kept))]))) == {"subject": "s"}


def test_a_user_that_is_not_text() -> None:
    for user in (b"\xff", b"a\0", b"u" * 256):
        converted = from_10(properties_10(user_id=user), data())
        assert (values_091(converted), headers_of(converted), converted.lost) == ({}, {}, {Loss.USER_ID})


def test_an_empty_user() -> None:
    """Brokers would take it for another one than the connection's."""
    assert from_10(properties_10(user_id=b""), data()).properties == b"\0\0"


def test_what_the_plugin_of_rabbitmq_3_writes() -> None:
    """Its user-id is a string, its keys of annotations too, and its headers hold sections."""
    fields_of = [text("m"), text("guest"), NULL, text("key")]
    properties = b"\0\x53\x73" + types.encode_list([types.encode(value) for value in fields_of])
    converted = from_10(
        sections.section(MESSAGE_ANNOTATIONS, entries(("x-a", text("b")), key="string")), properties, data()
    )
    assert values_091(converted) == {"message_id": b"\x01m", "user_id": b"\x05guest"}
    assert headers_of(converted)["x-a"] == Field("S", "b")
    assert converted.lost == set()


def test_fields_of_other_types() -> None:
    odd = b"\0\x53\x73" + types.encode_list([types.encode(Value("int", 1)), types.encode(symbol("u"))])
    converted = from_10(odd, data())
    assert (values_091(converted), headers_of(converted), converted.lost) == ({}, {}, {Loss.PROPERTY})


# Headers that are more than headers


def test_dead_letters() -> None:
    with_ttl = Value("map", ((symbol("ttl"), Value("uint", 9)), *DEATH.value))
    converted = from_10(noted(("x-opt-deaths", array_of("map", [DEATH.value, with_ttl.value]))), data())
    expired = (("original-expiration", Field("S", "9")), *DIED)
    assert headers_of(converted) == {"x-death": fields.array(fields.table(DIED), fields.table(expired))}
    assert converted.lost == set()


@pytest.mark.parametrize(
    "other",
    [
        text("x"),
        array_of("long", [1]),
        array_of("map", []),
        array_of("map", [DEATH.value[1:]]),
        array_of("map", [(*DEATH.value[:-1], (symbol("routing-keys"), array_of("long", [300])))]),
        array_of("map", [(*DEATH.value[:2], (symbol("count"), text("2")), *DEATH.value[3:])]),
    ],
)
def test_what_only_looks_like_dead_letters(other: Value) -> None:
    assert list(headers_of(from_10(noted(("x-opt-deaths", other)), data()))) == ["x-opt-deaths"]


def test_deaths_beyond_counting() -> None:
    first = [(symbol("count"), Value("ulong", 2**64 - 1)), (symbol("first-time"), Value("timestamp", -1))]
    death = tuple(dict([*DEATH.value, *first]).items())
    [table] = headers_of(from_10(noted(("x-opt-deaths", array_of("map", [death]))), data()))["x-death"].value
    assert dict(table.value) == {**dict(DIED), "count": Field("l", 2**63 - 1), "time": Field("T", 0)}


def test_annotations_with_a_meaning() -> None:
    converted = from_10(
        noted(
            ("x-exchange", text("x")),
            ("x-routing-key", text("k")),
            ("x-basic-type", text("t")),
            ("x-basic-priority", Value("ubyte", 3)),
            ("x-cc", Value("list", (text("k2"),))),
            ("x-opt-rabbitmq-received-time", Value("timestamp", 5_001)),
            ("x-opt-rabbitmq-other", text("o")),
            ("x-stream-offset", Value("ulong", 7)),
        ),
        data(),
    )
    assert (converted.exchange, converted.routing_key, converted.lost) == (b"x", b"k", set())
    assert values_091(converted) == {"type": b"\x01t"}
    assert headers_of(converted) == {
        "CC": fields.array(Field("S", "k2")),
        "timestamp_in_ms": Field("l", 5_001),
        "x-opt-rabbitmq-other": Field("S", "o"),
    }


def test_annotations_without_a_header() -> None:
    converted = from_10(noted(("y", text("v")), (Value("ulong", 7), text("v")), ("x-a", text("v"))), data())
    assert (headers_of(converted), converted.lost) == ({"x-a": Field("S", "v")}, {Loss.ANNOTATION})


def test_routing_keys_in_cc() -> None:
    keys = (Field("S", "k"), Field("S", "\udcff"), Field("l", 5))
    converted = from_091(properties_091([("CC", fields.array(*keys))]))
    assert annotations_of(converted) == {"x-cc": Value("list", (text("k"),))}
    assert converted.lost == {Loss.CC}
    assert application_of(from_091(properties_091([("CC", Field("S", "k"))]))) == {"CC": text("k")}


def test_forged_places() -> None:
    """Headers don't say where a message was published."""
    names = ("x-exchange", "x-routing-key")
    converted = to_10(properties_091([(name, Field("S", "forged")) for name in names]), b"", b"x", b"\xff")
    assert pairs_of(converted, "message_annotations") == {
        "x-exchange": text("x"),
        "x-routing-key": Value("binary", b"\xff"),
    }
    assert converted.lost == {Loss.NAME}


@pytest.mark.parametrize("names", [["a", "a"], ["x-a", "x-a"], ["\udcff"], ["x-é"]])
def test_names_that_amqp_1_0_refuses(names: list[str]) -> None:
    converted = from_091(properties_091([(name, Field("V", None)) for name in names]))
    assert converted.lost == {Loss.NAME}
    assert len(application_of(converted)) + len(annotations_of(converted)) == len(names) - 1


@pytest.mark.parametrize(
    "parts",
    [
        application(("a", NULL), ("a", NULL)),
        noted(("x-a", NULL)) + application(("x-a", text("v"))),
        application(("a", NULL), (LONG, NULL)),
        application(("a", NULL), (Value("int", 1), NULL)),
        application(("a", NULL), (KEPT, NULL)),
        noted(("x-a", NULL), (KEPT, Value("binary", b"junk"))),
    ],
)
def test_names_that_0_9_1_refuses(parts: bytes) -> None:
    """The first of several stays; nobody but this writes the headers that keep sections."""
    converted = from_10(parts, data())
    assert converted.lost == {Loss.NAME}
    assert list(headers_of(converted).values()) == [Field("V", None)]


# Bodies


def test_bodies_that_are_not_data() -> None:
    for body in (
        sections.section(sections.VALUE, text("v")),
        sections.section(sections.SEQUENCE, longs(1)) * 2,
        sections.section(sections.VALUE, NULL) + sections.section(FOOTER, entries(("x-f", text("v")), key="symbol")),
    ):
        converted = from_10(noted(("x-basic-type", text("t"))), body)
        assert (values_091(converted), converted.body, converted.lost) == ({"type": b"\x08amqp-1.0"}, body, set())
        back = from_091(converted.properties, converted.body)
        assert back.message.endswith(body)
        assert (annotations_of(back), back.lost) == ({}, set())


@pytest.mark.parametrize("body", [b"", b"junk", application(), application() + data(), data()[:-1]])
def test_bodies_that_only_claim_to_be_of_amqp_1_0(body: bytes) -> None:
    converted = from_091(properties_091(type="amqp-1.0"), body)
    assert body_of(converted) == [Value("binary", body)]
    assert annotations_of(converted) == {"x-basic-type": text("amqp-1.0")}


def test_data_in_parts() -> None:
    converted = from_10(data(b"a"), data(b"b" * 300))
    assert (converted.body, converted.lost) == (b"a" + b"b" * 300, {Loss.BODY_PARTS})
    assert (from_10(data(b"b" * 300)).body, from_10(data(b"b" * 300)).lost) == (b"b" * 300, set())
    assert from_10(application()).body == b""


def test_footers() -> None:
    footer = sections.section(FOOTER, entries(("x-f", text("v")), key="symbol"))
    converted = from_10(data(), footer)
    assert (converted.body, headers_of(converted), converted.lost) == (b"m", {}, {Loss.FOOTER})
    kept = Field("S", footer.decode("utf-8", "surrogateescape"))
    assert from_091(properties_091([("x-amqp-1.0-footer", kept)])).message.endswith(data() + footer)
    value = sections.section(sections.VALUE, NULL)
    both = from_091(properties_091([("x-amqp-1.0-footer", kept)], type="amqp-1.0"), value + footer)
    assert both.message.endswith(value + footer)
    assert both.lost == {Loss.NAME}


# Sections that RabbitMQ 3 kept in headers


def test_kept_sections() -> None:
    """What headers say besides is newer."""
    kept = {
        KEPT: properties_10(message_id=Value("ulong", 5), subject="s"),
        "x-amqp-1.0-app-properties": application(("a", text("old")), ("u", Value("uuid", UUID))),
        "x-amqp-1.0-message-annotations": noted(
            ("x-b", text("old")), ("x-y", text("v")), ("z", NULL), (Value("ulong", 1), NULL)
        ),
    }
    headers = [(name, Field("S", raw.decode("utf-8", "surrogateescape"))) for name, raw in kept.items()]
    newer = [("a", Field("S", "new")), ("x-b", Field("S", "new")), ("x-message-id", Field("x", b"5"))]
    converted = from_091(properties_091([*headers, *newer], message_id="m"))
    assert values_10(converted) == {"message_id": Value("ulong", 5), "subject": "s"}
    assert application_of(converted) == {"a": text("new"), "u": Value("uuid", UUID)}
    assert annotations_of(converted) == {"x-b": text("new"), "x-y": text("v")}
    assert converted.lost == {Loss.ANNOTATION}


@pytest.mark.parametrize("name", ["properties", "app-properties", "message-annotations", "footer", "other"])
@pytest.mark.parametrize(
    "junk",
    [b"", b"junk", data(), properties_10() + data(), b"\0\x53\x73\xc0\x03\x01\x41", b"\0\x53\x74\xc1\x03\x02\xa1\x09"],
)
def test_headers_that_only_claim_to_be_sections(name: str, junk: bytes) -> None:
    """They stop AMQP 1.0's consumers of RabbitMQ 4.3; here nothing of them goes on."""
    header = (f"x-amqp-1.0-{name}", Field("S", junk.decode("utf-8", "surrogateescape")))
    converted = from_091(properties_091([header], message_id="m"))
    assert values_10(converted).items() <= {"message_id": text("m")}.items()
    assert (annotations_of(converted), application_of(converted)) == ({}, {})
    assert converted.lost <= {Loss.NAME, Loss.PROPERTY}
    assert converted.lost


# Hostile messages


def nested(levels: int) -> Field:
    value = fields.array()
    for _ in range(levels):
        value = fields.array(value)
    return value


def test_deep_values() -> None:
    fits = from_091(properties_091([("x-a", nested(MAX_DEPTH - 2))]))
    assert fits.lost == set()
    assert headers_of(from_10(fits.message)) == {"x-a": nested(MAX_DEPTH - 2)}
    raw = b"\0\0\0\0"
    for _ in range(10_000):
        raw = (5 + len(raw) - 4).to_bytes(4, "big") + b"A" + raw
    table = b"\x03x-aA" + raw
    properties = b"\x20\0" + len(table).to_bytes(4, "big") + table
    assert from_091(properties).lost == {Loss.NESTED}
    deep = Value("list", ())
    for _ in range(MAX_DEPTH):
        deep = Value("list", (deep,))
    assert from_10(noted(("x-a", deep)), data()).lost == {Loss.NESTED}


def test_large_values() -> None:
    """Nested ones cost most: what is beyond the limit is left out, and the rest stays."""
    half = fields.array(*[Field("V", None)] * (LARGEST_NESTED // 2))
    three = [(f"x-{number}", half) for number in range(3)]
    converted = from_091(properties_091([*three, ("x-s", Field("S", "s"))]))
    assert set(annotations_of(converted)) == {"x-0", "x-s"}
    assert converted.lost == {Loss.NESTED}
    value = Value("list", (NULL,) * (LARGEST_NESTED // 2))
    back = from_10(noted(*((name, value) for name, _ in three), ("x-s", text("s"))), data())
    assert (set(headers_of(back)), back.lost) == ({"x-0", "x-s"}, {Loss.NESTED})


def test_more_than_a_header_of_0_9_1_holds() -> None:
    with pytest.raises(CodecError, match="bytes before its body"):
        from_10(application(("a", text("a" * LARGEST))), data())
    assert len(from_10(data(b"a" * (LARGEST + 1))).body) == LARGEST + 1


def test_the_page_names_every_loss() -> None:
    page = (Path(__file__).parents[3] / "docs/amqp10-conversion.md").read_text()
    assert [loss for loss in Loss if f"`{loss}`" not in page] == []


def readable(converted: Converted091) -> None:
    read = Properties.read(converted.properties)
    assert read.write() == converted.properties
    assert decode_table(read.raw_headers)[1] == len(read.raw_headers)


def readable_10(converted: Converted10) -> None:
    found = find_sections(converted.message)
    sections.header(converted.message, found)
    sections.properties(converted.message, found)
    for part in (found.message_annotations, found.application_properties):
        sections.pairs(converted.message, part)


@given(st.binary(max_size=80), st.binary(max_size=20))
def test_any_bytes_as_a_message_of_0_9_1(properties: bytes, body: bytes) -> None:
    try:
        converted = to_10(properties, body, properties[:5], body)
    except CodecError:
        return
    readable_10(converted)


@given(st.binary(max_size=80), st.binary(max_size=60))
def test_any_headers_of_0_9_1(table: bytes, body: bytes) -> None:
    properties = b"\x20\0" + len(table).to_bytes(4, "big") + table
    try:
        converted = to_10(properties, body, b"", b"")
    except CodecError:
        return
    readable_10(converted)


@given(st.lists(st.tuples(st.sampled_from([0x70, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78]), st.binary(max_size=40))))
def test_any_bytes_as_a_message_of_amqp_1_0(parts: list[tuple[int, bytes]]) -> None:
    message = b"".join(
        b"\0\x53" + bytes((code,)) + content for code, content in sorted(parts, key=lambda each: each[0])
    )
    try:
        converted = to_091(message, find_sections(message))
    except CodecError:
        return
    readable(converted)


@given(st.integers(0, 12), st.binary(max_size=60))
@example(0, b"\xa1\x01k\0\0\0\0")
def test_any_value_of_amqp_1_0(count: int, content: bytes) -> None:
    """In maps of annotations and of application properties, whatever their sizes say."""
    for code in (b"\x72", b"\x74"):
        for form in (bytes((0xC1, len(content) + 1, count)), b"\xd1" + struct.pack(">II", len(content) + 4, count)):
            message = b"\0\x53" + code + form + content + data()
            try:
                converted = to_091(message, find_sections(message))
            except CodecError:
                continue
            readable(converted)


annotation_values = st.dictionaries(
    st.sampled_from(["x-a", "x-opt-deaths", "x-cc", "x-opt-headers", "y"]), strategies.values
)
application_values = st.dictionaries(strategies.texts, strategies.values, max_size=4)


@given(annotation_values, application_values, strategies.values)
def test_any_message_of_amqp_1_0(notes: dict[str, Value], values: dict[str, Value], body: Value) -> None:
    converted = from_10(noted(*notes.items()), application(*values.items()), sections.section(sections.VALUE, body))
    readable(converted)
    readable_10(to_10(converted.properties, converted.body, converted.exchange, converted.routing_key))


# What comes back


def plain(field: Field) -> Field:
    """A value of 0-9-1 as it comes back: AMQP 1.0 has one type for two of them."""
    match field:
        case Field("L", value):
            return Field("l", value)
        case Field("x", value):
            return Field("S", value.decode("utf-8", "surrogateescape"))
        case Field("t", value):
            return Field("t", value not in {False, b"\0"})
        case Field("A", value):
            return fields.array(*map(plain, value))
        case Field("F", value):
            return fields.table(tuple((name, plain(each)) for name, each in value))
    return field


@given(strategies_091.properties, st.binary(max_size=20))
def test_from_0_9_1_and_back(properties: Properties, body: bytes) -> None:
    there = to_10(properties.write(), body, b"x", b"k")
    back = from_10(there.message)
    assert (back.exchange, back.routing_key, back.body) == (b"x", b"k", body)
    if there.lost or back.lost:
        return
    read = Properties.read(back.properties)
    assert {name: plain(field) for name, field in properties.headers} == dict(read.headers)
    mode = b"\x02" if properties.get(FLAGS["delivery_mode"]) == b"\x02" else b"\x01"
    sent = {**dict(properties.values), FLAGS["delivery_mode"]: mode}
    assert {flag: value for flag, value in read.values if flag != HEADERS} == {
        flag: value for flag, value in sent.items() if flag != HEADERS
    }


ids = st.one_of(
    strategies.texts.map(text),
    st.binary(max_size=20).map(lambda raw: Value("binary", raw)),
    st.integers(0, 2**64 - 1).map(lambda number: Value("ulong", number)),
    st.binary(min_size=16, max_size=16).map(lambda raw: Value("uuid", raw)),
)
times = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**40).map(lambda seconds: seconds * 1000)
ten_properties = st.fixed_dictionaries(
    {},
    optional={
        "message_id": ids,
        "user_id": st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20).map(
            str.encode
        ),
        "to": strategies.texts.map(text),
        "subject": strategies.texts,
        "reply_to": (strategies.texts | strategies.texts.map("/queues/{}".format)).map(text),
        "correlation_id": ids,
        "content_type": strategies.symbols,
        "content_encoding": strategies.symbols,
        "absolute_expiry_time": times,
        "creation_time": times,
        "group_id": strategies.texts,
        "group_sequence": st.integers(0, 2**32 - 1),
        "reply_to_group_id": strategies.texts,
    },
)


@given(ten_properties)
@example({"reply_to": text("/queues/%2f")})
@example({"message_id": text(URN.upper())})
def test_from_amqp_1_0_and_back(properties: dict[str, Any]) -> None:
    """No property is lost, and none changes its type."""
    there = from_10(properties_10(**properties), data())
    back = to_10(there.properties, there.body, b"", b"")
    assert (values_10(back), there.lost, back.lost) == (properties, set(), set())
