"""Values of AMQP 0-9-1's header tables as AMQP 1.0's and back, from bytes to bytes.

Left out: what no type of the other protocol is for, what RabbitMQ refuses, what is nested more than 24 deep, and lists
and maps beyond 16 KiB of them in one message, so that no message takes long.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from agent.amqp.wire.tables import MAX_SHORT, CodecError
from agent.amqp10 import types
from agent.amqp10.types import CUT_OFF, LARGEST_SMALL, skip

MAX_DEPTH: Final = 24
LARGEST_NESTED: Final = 16_384  # bytes of all lists and maps in one message: 25 ms at worst
LONGEST_TEXT: Final = 4096
"""Longer strings of 0-9-1 become binaries, as RabbitMQ does, which doesn't look whether they are text."""


class Loss(StrEnum):
    """A thing that a message may lose on its way from one protocol to the other."""

    ANNOTATION = "annotation whose name doesn't begin with x-"
    BODY_PARTS = "division of the body into data sections"
    CC = "routing key in CC that isn't text"
    CHARACTER = "character that Unicode doesn't have"
    CLUSTER_ID = "cluster-id"
    DECIMAL = "decimal number"
    NESTED = "list or map that is too deep or too large"
    DESCRIPTOR = "descriptor of a value"
    FOOTER = "footer"
    EXPIRATION = "expiration that isn't a number of milliseconds"
    LARGE_NUMBER = "number above 2^63 as such: it becomes text"
    NAME = "name that is repeated, reserved, too long or not text"
    NOT_A_NUMBER = "NaN or infinity"
    PROPERTY = "property of an unexpected type, or that isn't text"
    SUB_SECOND = "milliseconds of a time"
    TIME = "time out of range"
    USER_ID = "user-id that isn't text"


class Losses(set[Loss]):
    """The losses of one message so far."""

    room = LARGEST_NESTED

    def has_room(self, size: int, depth: int = MAX_DEPTH) -> bool:
        """True if a list or map of this size may be converted; otherwise it is noted as a loss."""
        if depth == MAX_DEPTH:
            self.room -= size
        if depth > 1 and self.room >= 0:
            return True
        self.add(Loss.NESTED)
        return False


_SIZE: Final = struct.Struct(">I")
_LONG: Final = struct.Struct(">q")
_BYTE: Final = [bytes((number,)) for number in range(256)]
_SIZE_AND_COUNT: Final = struct.Struct(">II")


# From AMQP 1.0

_FIXED_10: Final = {
    0x40: (b"V", 0),
    0x41: (b"t\x01", 0),
    0x42: (b"t\x00", 0),
    0x43: (b"i\x00\x00\x00\x00", 0),
    0x44: (b"l\x00\x00\x00\x00\x00\x00\x00\x00", 0),
    0x45: (b"A\x00\x00\x00\x00", 0),
    0x50: (b"B", 1),
    0x51: (b"b", 1),
    0x52: (b"i\x00\x00\x00", 1),
    0x53: (b"l\x00\x00\x00\x00\x00\x00\x00", 1),
    0x56: (b"t", 1),
    0x60: (b"u", 2),
    0x61: (b"s", 2),
    0x70: (b"i", 4),
    0x71: (b"I", 4),
    0x81: (b"l", 8),
}
"""By code: the bytes that come before those of a value, and the number of these."""
_SMALL_TEXT: Final = frozenset(b"\xa0\xa1\xa3")
_LARGE_TEXT: Final = frozenset(b"\xb0\xb1\xb3")
MAPS: Final = frozenset(b"\xc1\xd1")
_ARRAYS: Final = frozenset(b"\xe0\xf0")
_DESCRIBED: Final = 0


def long_string(text: bytes) -> bytes:
    return b"S" + _SIZE.pack(len(text)) + text


def field_of(data: bytes, at: int, end: int, losses: Losses, *, depth: int = MAX_DEPTH) -> tuple[bytes, int]:
    """The AMQP 1.0 value at `at`, which may reach to `end`, with its tag for a table; and where it ends. Without any
    bytes if 0-9-1 has nothing for it."""
    code = data[at] if at < end else -1
    if code in _SMALL_TEXT and at + 1 < end:
        begin = at + 2
        after = begin + data[at + 1]
        if after <= end:
            return b"S\x00\x00\x00" + data[at + 1 : after], after
    elif (fixed := _FIXED_10.get(code)) is not None:
        tag, width = fixed
        after = at + 1 + width
        if after <= end:
            return tag + data[at + 1 : after], after
    elif code >= 0:
        after = skip(data, at)
        if after <= end:
            return _other_field(data, at, after, losses, depth), after
    raise CodecError(CUT_OFF)


def _other_field(data: bytes, at: int, after: int, losses: Losses, depth: int) -> bytes:
    code = data[at]
    if code in _LARGE_TEXT:
        return b"S" + data[at + 1 : after]
    if (convert := _SPECIAL.get(code)) is not None:
        return convert(data[at + 1 : after], losses)
    if not losses.has_room(after - at, depth):
        return b""
    if code == _DESCRIBED:
        losses.add(Loss.DESCRIPTOR)
        return field_of(data, skip(data, at + 1), after, losses, depth=depth - 1)[0]
    if code in MAPS:
        return b"F" + table_of(data, at, after, losses, depth=depth - 1)
    content = b"".join(_items(data, at, after, losses, depth - 1))
    return b"A" + _SIZE.pack(len(content)) + content


def _items(data: bytes, at: int, after: int, losses: Losses, depth: int) -> list[bytes]:
    """Of a list or an array."""
    if data[at] in _ARRAYS:
        array = types.decode(data, at, end=after)[0].value
        data = b"".join([types.encode(item) for item in array.items])
        at, after = 0, len(data)
    else:
        _, at, after = types.find_list(data, at, after)
    items = []
    while at < after:
        item, at = field_of(data, at, after, losses, depth=depth)
        items.append(item)
    return items


def table_of(data: bytes, at: int, after: int, losses: Losses, *, depth: int) -> bytes:
    """A map as a table, with its length."""
    entries: dict[bytes, bytes] = {}
    at, after = map_span(data, at, after)
    while at < after:
        name, at = name_at(data, at, after)
        value, at = field_of(data, at, after, losses, depth=depth)
        if name is None or len(name) > MAX_SHORT or name in entries:
            losses.add(Loss.NAME)
        elif value:
            entries[name] = value
    return table(entries)


def table(entries: dict[bytes, bytes]) -> bytes:
    """A header table, with its length, of names and values with their tags."""
    content = b"".join([part for name, value in entries.items() for part in (_BYTE[len(name)], name, value)])
    return _SIZE.pack(len(content)) + content


def map_span(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The beginning of the first key of the map at `at`, and the map's end."""
    head = 3 if data[at] == 0xC1 else 9
    after = skip(data, at)
    if after > end or after < at + head:
        raise CodecError(CUT_OFF)
    return at + head, after


def name_at(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """A map's key if it is text, and where it ends; that is before the end, where its value begins."""
    code = data[at]
    if code in _SMALL_TEXT and at + 1 < end:
        begin = at + 2
        after = begin + data[at + 1]
    else:
        begin = at + 5
        after = skip(data, at)
    if after >= end:
        raise CodecError("a map's key is cut off, or has no value")
    return (data[begin:after] if code in _SMALL_TEXT or code in _LARGE_TEXT else None), after


def uuid_text(raw: bytes) -> bytes:
    text = raw.hex()
    return f"urn:uuid:{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}".encode()


def _small_int(raw: bytes, _: Losses) -> bytes:
    return (b"I\xff\xff\xff" if raw[0] & 0x80 else b"I\x00\x00\x00") + raw


def _small_long(raw: bytes, _: Losses) -> bytes:
    return (b"l\xff\xff\xff\xff\xff\xff\xff" if raw[0] & 0x80 else b"l\x00\x00\x00\x00\x00\x00\x00") + raw


def _unsigned_long(raw: bytes, losses: Losses) -> bytes:
    if raw[0] & 0x80:
        losses.add(Loss.LARGE_NUMBER)
        return long_string(b"%d" % int.from_bytes(raw, "big"))
    return b"l" + raw


def _float(raw: bytes, losses: Losses) -> bytes:
    return _finite(b"f", raw, losses, is_finite=(raw[0] & 0x7F, raw[1] & 0x80) != (0x7F, 0x80))


def _double(raw: bytes, losses: Losses) -> bytes:
    return _finite(b"d", raw, losses, is_finite=(raw[0] & 0x7F, raw[1] & 0xF0) != (0x7F, 0xF0))


def _finite(tag: bytes, raw: bytes, losses: Losses, *, is_finite: bool) -> bytes:
    """RabbitMQ closes the connection that publishes any other number in a table."""
    if is_finite:
        return tag + raw
    losses.add(Loss.NOT_A_NUMBER)
    return b""


def _time(raw: bytes, losses: Losses) -> bytes:
    milliseconds = _LONG.unpack(raw)[0]
    if milliseconds < 0:
        losses.add(Loss.TIME)
        return b""
    if milliseconds % 1000:
        losses.add(Loss.SUB_SECOND)
    return b"T" + _LONG.pack(milliseconds // 1000)


def _char(raw: bytes, losses: Losses) -> bytes:
    try:
        return long_string(chr(int.from_bytes(raw, "big")).encode())
    except (ValueError, OverflowError):
        losses.add(Loss.CHARACTER)
        return b""


def _decimal(_: bytes, losses: Losses) -> bytes:
    losses.add(Loss.DECIMAL)
    return b""


_SPECIAL: Final[dict[int, Callable[[bytes, Losses], bytes]]] = {
    0x54: _small_int,
    0x55: _small_long,
    0x72: _float,
    0x73: _char,
    0x74: _decimal,
    0x80: _unsigned_long,
    0x82: _double,
    0x83: _time,
    0x84: _decimal,
    0x94: _decimal,
    0x98: lambda raw, _: long_string(uuid_text(raw)),
}


# To AMQP 1.0

_FIXED_091: Final = {
    tag: (bytes((code,)), width)
    for tag, code, width in (
        (ord("b"), 0x51, 1),
        (ord("B"), 0x50, 1),
        (ord("s"), 0x61, 2),
        (ord("u"), 0x60, 2),
        (ord("I"), 0x71, 4),
        (ord("i"), 0x70, 4),
        (ord("f"), 0x72, 4),
        (ord("l"), 0x81, 8),
        (ord("L"), 0x81, 8),
        (ord("d"), 0x82, 8),
    )
}
_STRING: Final = ord("S")
_BYTES: Final = ord("x")
_VOID: Final = ord("V")
_BOOLEAN: Final = ord("t")
_TIME: Final = ord("T")
_DECIMAL: Final = ord("D")
ARRAY: Final = ord("A")
TABLE: Final = ord("F")
_LATEST: Final = (2**63 - 1) // 1000  # seconds
_HEADS: Final = {code: [bytes((code, size)) for size in range(256)] for code in (0xA0, 0xA1, 0xA3)}
BINARY: Final = 0xA0
STRING: Final = 0xA1
SYMBOL: Final = 0xA3
LIST: Final = 0xC0
MAP: Final = 0xC1


def text_of(code: int, text: bytes) -> bytes:
    """As a BINARY, STRING or SYMBOL."""
    size = len(text)
    if size <= LARGEST_SMALL:
        return _HEADS[code][size] + text
    return bytes((code + 0x10,)) + _SIZE.pack(size) + text


def is_text(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def string_of(data: bytes) -> bytes:
    """A string, or a binary if it isn't text."""
    return text_of(STRING if len(data) <= LONGEST_TEXT and 0 not in data and is_text(data) else BINARY, data)


def compound(code: int, items: list[bytes]) -> bytes:
    """A LIST, or a MAP of keys and values in turn."""
    content = b"".join(items)
    size, count = len(content), len(items)
    if size < LARGEST_SMALL and count <= LARGEST_SMALL:
        return bytes((code, size + 1, count)) + content
    return bytes((code + 0x10,)) + _SIZE_AND_COUNT.pack(size + 4, count) + content


def span_of(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The beginning and end of something whose length is at `at`, before it."""
    begin = at + 4
    after = begin + (_SIZE.unpack_from(data, at)[0] if begin <= end else 0)
    if begin > end or after > end:
        raise CodecError("a table, array or string is longer than its container")
    return begin, after


def value_of(data: bytes, at: int, end: int, losses: Losses, *, depth: int = MAX_DEPTH) -> tuple[bytes, int]:
    """The value of a table at `at`, which may reach to `end`, as AMQP 1.0's; and where it ends. Without any bytes if
    it has nothing for it."""
    tag = data[at] if at < end else -1
    if tag == _STRING:
        begin, after = span_of(data, at + 1, end)
        return string_of(data[begin:after]), after
    if (fixed := _FIXED_091.get(tag)) is not None:
        code, width = fixed
        after = at + 1 + width
        if after > end:
            raise CodecError("a value is cut off")
        return code + data[at + 1 : after], after
    return _other_value(tag, data, at + 1, end, losses=losses, depth=depth)


def _other_value(tag: int, data: bytes, at: int, end: int, *, losses: Losses, depth: int) -> tuple[bytes, int]:
    if tag in {ARRAY, TABLE, _BYTES}:
        begin, after = span_of(data, at, end)
        if tag == _BYTES:
            return text_of(BINARY, data[begin:after]), after
        if not losses.has_room(after - at, depth):
            return b"", after
        read = _list_of if tag == ARRAY else _map_of
        return read(data, begin, after, losses, depth - 1), after
    after = at + {_VOID: 0, _BOOLEAN: 1, _DECIMAL: 5, _TIME: 8}.get(tag, len(data))
    if after > end:
        raise CodecError(f"a value is cut off, or its tag {tag} is unknown")
    if tag == _VOID:
        return b"\x40", after
    if tag == _BOOLEAN:
        return b"\x41" if data[at] else b"\x42", after
    if tag == _TIME:
        return milliseconds_of(data[at:after], losses), after
    losses.add(Loss.DECIMAL)
    return b"", after


def milliseconds_of(raw: bytes, losses: Losses) -> bytes:
    """A timestamp of 0-9-1, in seconds, as AMQP 1.0's; nothing if it is too large."""
    seconds = int.from_bytes(raw, "big")
    if seconds > _LATEST:
        losses.add(Loss.TIME)
        return b""
    return b"\x83" + _LONG.pack(seconds * 1000)


def _list_of(data: bytes, at: int, end: int, losses: Losses, depth: int) -> bytes:
    items = []
    while at < end:
        item, at = value_of(data, at, end, losses, depth=depth)
        if item:
            items.append(item)
    return compound(LIST, items)


def _map_of(data: bytes, at: int, end: int, losses: Losses, depth: int) -> bytes:
    entries: dict[bytes, bytes] = {}
    while at < end:
        name, at = header_name(data, at, end)
        value, at = value_of(data, at, end, losses, depth=depth)
        if name in entries or not is_text(name):
            losses.add(Loss.NAME)
        elif value:
            entries[name] = value
    return compound(MAP, [part for name, value in entries.items() for part in (_key(name), value)])


def _key(name: bytes) -> bytes:
    return text_of(SYMBOL if name.isascii() else STRING, name)


def header_name(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """The name of the entry at `at` of a table that ends at `end`, and where its value begins."""
    begin = at + 1
    after = begin + data[at]
    if after >= end:
        raise CodecError("a table's entry is cut off")
    return data[begin:after], after
