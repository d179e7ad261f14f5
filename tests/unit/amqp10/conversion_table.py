"""The tables of docs/amqp10-conversion.md, case by case, and how their messages are made."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

from agent.amqp.wire import properties as wire
from agent.amqp.wire.properties import HEADERS, Properties
from agent.amqp.wire.tables import encode_table
from agent.amqp10 import sections
from agent.amqp10.conversion.values import LONGEST_TEXT, Loss
from agent.amqp10.sections import APPLICATION_PROPERTIES, DATA, MESSAGE_ANNOTATIONS
from agent.amqp10.types import NULL, Value, array_of
from agent.core import fields
from agent.core.fields import Field, Table

UUID: Final = bytes(range(16))
URN: Final = "urn:uuid:00010203-0405-0607-0809-0a0b0c0d0e0f"
KEPT: Final = "x-amqp-1.0-properties"
NAN: Final = b"\x7f\xf8\0\0\0\0\0\1"
LONG: Final = "l" * 256


def text(value: str) -> Value:
    return Value("string", value)


def symbol(value: str) -> Value:
    return Value("symbol", value)


def longs(*values: int) -> Value:
    return Value("list", tuple(Value("long", value) for value in values))


def entries(*pairs: tuple[str | Value, Value], key: str) -> Value:
    return Value("map", tuple((Value(key, name) if isinstance(name, str) else name, value) for name, value in pairs))


def noted(*pairs: tuple[str | Value, Value]) -> bytes:
    return sections.section(MESSAGE_ANNOTATIONS, entries(*pairs, key="symbol"))


def application(*pairs: tuple[str | Value, Value]) -> bytes:
    return sections.section(APPLICATION_PROPERTIES, entries(*pairs, key="string"))


def data(body: bytes = b"m") -> bytes:
    return sections.section(DATA, Value("binary", body))


def properties_10(**values: Any) -> bytes:
    return sections.PROPERTIES.encode(**values)


def properties_091(headers: Iterable[tuple[str, Field]] = (), **values: str | int) -> bytes:
    found = dict(wire.encode(name, value) for name, value in values.items())
    if headers := tuple(headers):
        found[HEADERS] = encode_table(headers)
    return Properties(sum(found), tuple(sorted(found.items(), reverse=True))).write()


# Values of headers and of application properties, and what is lost of them

TO_091: Final[list[tuple[Value, Field | None, Loss | None]]] = [
    (text("é"), Field("S", "é"), None),
    (text("a" * 300), Field("S", "a" * 300), None),
    (symbol("a"), Field("S", "a"), None),
    (Value("binary", b"\xff"), Field("S", "\udcff"), None),
    (NULL, Field("V", None), None),
    (Value("boolean", True), Field("t", True), None),
    (Value("boolean", False), Field("t", False), None),
    *((Value("ubyte", number), Field("B", number), None) for number in (0, 255)),
    *((Value("byte", number), Field("b", number), None) for number in (-128, 127)),
    *((Value("ushort", number), Field("u", number), None) for number in (0, 2**16 - 1)),
    *((Value("short", number), Field("s", number), None) for number in (-(2**15), 2**15 - 1)),
    *((Value("uint", number), Field("i", number), None) for number in (0, 255, 256, 2**32 - 1)),
    *((Value("int", number), Field("I", number), None) for number in (-(2**31), -129, -1, 0, 127, 2**31 - 1)),
    *((Value("ulong", number), Field("l", number), None) for number in (0, 255, 256, 2**63 - 1)),
    (Value("ulong", 2**63), Field("S", str(2**63)), Loss.LARGE_NUMBER),
    *((Value("long", number), Field("l", number), None) for number in (-(2**63), -129, -1, 0, 127, 2**63 - 1)),
    (Value("float", 1.5), Field("f", struct.pack(">f", 1.5)), None),
    (Value("float", b"\x7f\x80\0\1"), None, Loss.NOT_A_NUMBER),
    (Value("float", float("inf")), None, Loss.NOT_A_NUMBER),
    (Value("double", -1.5e300), Field("d", struct.pack(">d", -1.5e300)), None),
    (Value("double", NAN), None, Loss.NOT_A_NUMBER),
    (Value("double", float("-inf")), None, Loss.NOT_A_NUMBER),
    (Value("timestamp", 1_700_000_000_000), Field("T", 1_700_000_000), None),
    (Value("timestamp", 1_700_000_000_001), Field("T", 1_700_000_000), Loss.SUB_SECOND),
    (Value("timestamp", -1), None, Loss.TIME),
    (Value("uuid", UUID), Field("S", URN), None),
    (Value("char", ord("é")), Field("S", "é"), None),
    (Value("char", 0xD800), None, Loss.CHARACTER),
    (Value("char", 2**32 - 1), None, Loss.CHARACTER),
    *((Value(f"decimal{bits}", bytes(bits // 8)), None, Loss.DECIMAL) for bits in (32, 64, 128)),
    (longs(1, 2), fields.array(Field("l", 1), Field("l", 2)), None),
    (Value("list", ()), fields.array(), None),
    (array_of("long", [1, 300]), fields.array(Field("l", 1), Field("l", 300)), None),
    (Value("list", (Value("decimal32", b"1234"), NULL)), fields.array(Field("V", None)), Loss.DECIMAL),
    (entries(("k", text("v")), key="symbol"), fields.table((("k", Field("S", "v")),)), None),
    (entries((Value("int", 5), text("v")), key="symbol"), fields.table(()), Loss.NAME),
    (Value("described", (symbol("d"), text("v"))), Field("S", "v"), Loss.DESCRIPTOR),
]
TO_10: Final[list[tuple[Field, Value | None, Loss | None]]] = [
    (Field("S", "é"), text("é"), None),
    (Field("S", "\udcff"), Value("binary", b"\xff"), None),
    (Field("S", "a\0"), Value("binary", b"a\0"), None),
    (Field("S", "a" * LONGEST_TEXT), text("a" * LONGEST_TEXT), None),
    (Field("S", "a" * (LONGEST_TEXT + 1)), Value("binary", b"a" * (LONGEST_TEXT + 1)), None),
    (Field("x", b"a"), Value("binary", b"a"), None),
    (Field("V", None), NULL, None),
    (Field("t", True), Value("boolean", True), None),
    (Field("t", b"\x07"), Value("boolean", True), None),
    (Field("t", False), Value("boolean", False), None),
    (Field("B", 255), Value("ubyte", 255), None),
    (Field("b", -128), Value("byte", -128), None),
    (Field("u", 2**16 - 1), Value("ushort", 2**16 - 1), None),
    (Field("s", -(2**15)), Value("short", -(2**15)), None),
    (Field("i", 2**32 - 1), Value("uint", 2**32 - 1), None),
    (Field("I", -(2**31)), Value("int", -(2**31)), None),
    (Field("l", -(2**63)), Value("long", -(2**63)), None),
    (Field("L", -(2**63)), Value("long", -(2**63)), None),
    (Field("f", 1.5), Value("float", 1.5), None),
    (Field("d", 1.5), Value("double", 1.5), None),
    (Field("T", 1_700_000_000), Value("timestamp", 1_700_000_000_000), None),
    (Field("T", 2**63 // 1000 + 1), None, Loss.TIME),
    (Field("D", b"\x02\0\0\0\5"), None, Loss.DECIMAL),
]


# Properties

WHOLE: Final[list[tuple[dict[str, Any], dict[str, bytes]]]] = [
    ({"message_id": text("m")}, {"message_id": b"\x01m"}),
    ({"message_id": Value("uuid", UUID)}, {"message_id": b"\x2d" + URN.encode()}),
    ({"reply_to": text("/queues/a%20b")}, {"reply_to": b"\x03a b"}),
    ({"creation_time": 2000}, {"timestamp": b"\0\0\0\0\0\0\0\2"}),
    ({"content_type": "t", "content_encoding": "e"}, {"content_type": b"\x01t", "content_encoding": b"\x01e"}),
    ({"group_id": "g"}, {"app_id": b"\x01g"}),
    ({"user_id": b"u"}, {"user_id": b"\x01u"}),
]
NOT_WHOLE: Final[list[tuple[dict[str, Any], dict[str, bytes], dict[str, Field]]]] = [
    ({"to": text("t")}, {}, {}),
    ({"subject": "s"}, {}, {}),
    ({"absolute_expiry_time": 1}, {}, {}),
    ({"group_sequence": 1}, {}, {}),
    ({"reply_to_group_id": "g"}, {}, {}),
    ({"message_id": Value("ulong", 7)}, {"message_id": b"\x017"}, {}),
    ({"message_id": text(URN)}, {"message_id": b"\x2d" + URN.encode()}, {}),
    ({"message_id": Value("binary", b"\xff\0")}, {}, {"x-message-id": Field("x", b"\xff\0")}),
    ({"correlation_id": text(LONG)}, {}, {"x-correlation-id": Field("S", LONG)}),
    ({"correlation_id": text("\udcff")}, {}, {"x-correlation-id": Field("S", "\udcff")}),
    ({"reply_to": text("elsewhere")}, {"reply_to": b"\x09elsewhere"}, {}),
    ({"reply_to": text("/queue/q")}, {"reply_to": b"\x01q"}, {}),
    ({"reply_to": text("/queues/a b")}, {"reply_to": b"\x03a b"}, {}),
    ({"reply_to": text(LONG)}, {}, {}),
    ({"creation_time": 2001}, {"timestamp": b"\0\0\0\0\0\0\0\2"}, {}),
    ({"creation_time": -1}, {}, {}),
    ({"content_type": LONG}, {}, {}),
    ({"group_id": LONG}, {}, {}),
]


# Dead letters

DEATH: Final = entries(
    ("queue", text("q")),
    ("reason", symbol("expired")),
    ("count", Value("ulong", 2)),
    ("first-time", Value("timestamp", 5_500)),
    ("last-time", Value("timestamp", 6_500)),
    ("exchange", text("x")),
    ("routing-keys", array_of("string", ["k", "l"])),
    key="symbol",
)
DIED: Final[Table] = (
    ("count", Field("l", 2)),
    ("reason", Field("S", "expired")),
    ("queue", Field("S", "q")),
    ("time", Field("T", 5)),
    ("exchange", Field("S", "x")),
    ("routing-keys", fields.array(Field("S", "k"), Field("S", "l"))),
)
