"""Field tables as bytes and back, every tag kept; decoding and encoding again gives the same bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from agent.core.fields import Field, Table
from agent.errors import AgentError

MAX_DEPTH: Final = 64
MAX_SHORT: Final = 255


class CodecError(AgentError):
    """Bytes that are not AMQP, or a value that AMQP can't encode."""


_FIXED: Final[dict[str, struct.Struct]] = {
    "t": struct.Struct(">?"),
    "b": struct.Struct(">b"),
    "B": struct.Struct(">B"),
    "s": struct.Struct(">h"),
    "u": struct.Struct(">H"),
    "I": struct.Struct(">i"),
    "i": struct.Struct(">I"),
    "l": struct.Struct(">q"),
    "L": struct.Struct(">q"),
    "f": struct.Struct(">f"),
    "d": struct.Struct(">d"),
    "T": struct.Struct(">Q"),
    "D": struct.Struct(">Bi"),
}
FIXED_WIDTHS: Final = {tag: number.size for tag, number in _FIXED.items()}
# A NaN's payload and an unusual boolean must survive, so values that Python can't represent exactly stay bytes.
_KEPT_AS_BYTES: Final = frozenset("fdDxt")
_LENGTH: Final = struct.Struct(">I")


def short_string(value: str) -> bytes:
    data = value.encode("utf-8", "surrogateescape")
    if len(data) > MAX_SHORT:
        raise CodecError(f"a short string has at most {MAX_SHORT} bytes")
    return bytes((len(data),)) + data


def long_string(value: str) -> bytes:
    data = value.encode("utf-8", "surrogateescape")
    return _LENGTH.pack(len(data)) + data


def encode_table(table: Table) -> bytes:
    body = b"".join(short_string(name) + encode_value(value) for name, value in table)
    return _LENGTH.pack(len(body)) + body


def encode_value(field: Field) -> bytes:
    tag = field.tag.encode("latin-1")
    value = field.value
    match field.tag:
        case "x":
            return tag + _LENGTH.pack(len(value)) + bytes(value)
        case _ if isinstance(value, bytes):
            return tag + value
        case "S":
            return tag + long_string(value)
        case "V":
            return tag
        case "F":
            return tag + encode_table(value)
        case "A":
            items = b"".join(encode_value(item) for item in value)
            return tag + _LENGTH.pack(len(items)) + items
        case _:
            return tag + _fixed(field.tag, value)


def _fixed(tag: str, value: Any) -> bytes:
    try:
        return _FIXED[tag].pack(value)
    except (KeyError, struct.error) as error:
        raise CodecError(f"AMQP can't encode a value with tag {tag!r}") from error


def decode_table(data: bytes, start: int = 0, *, depth: int = MAX_DEPTH) -> tuple[Table, int]:
    """The table at `start` and its end; values nested more deeply stay bytes, because brokers accept any depth."""
    end = _end(data, start)
    return _entries(data, start + 4, end, depth), end


def _end(data: bytes, start: int, limit: int | None = None) -> int:
    limit = len(data) if limit is None else limit
    if start + 4 > limit:
        raise CodecError("a length is cut off")
    end = start + 4 + int(_LENGTH.unpack_from(data, start)[0])
    if end > limit:
        raise CodecError("a table, array or string is longer than its container")
    return end


def _entries(data: bytes, at: int, end: int, depth: int) -> Table:
    entries: list[tuple[str, Field]] = []
    while at < end:
        after = at + 1 + data[at]
        if after >= end:
            raise CodecError("a table's entry is cut off")
        name = data[at + 1 : after].decode("utf-8", "surrogateescape")
        value, at = _value(data, after, end, depth)
        entries.append((name, value))
    return tuple(entries)


def _value(data: bytes, at: int, end: int, depth: int) -> tuple[Field, int]:
    tag = chr(data[at])
    at += 1
    if fixed := _FIXED.get(tag):
        after = at + fixed.size
        if after > end:
            raise CodecError("a value is cut off")
        raw = data[at:after]
        return Field(tag, raw if tag in _KEPT_AS_BYTES and _is_odd(tag, raw) else fixed.unpack(raw)[0]), after
    if tag == "V":
        return Field(tag, None), at
    reader = _VARIABLE.get(tag)
    if reader is None:
        raise CodecError(f"unknown field tag {tag!r}")
    after = _end(data, at, end)
    if tag in "AF" and depth <= 1:
        return Field(tag, data[at:after]), after
    return Field(tag, reader(data, at + 4, after, depth - 1)), after


def _is_odd(tag: str, raw: bytes) -> bool:
    """True if packing the unpacked value again may give other bytes."""
    return tag != "t" or raw not in {b"\0", b"\1"}


def _array(data: bytes, at: int, end: int, depth: int) -> tuple[Field, ...]:
    items: list[Field] = []
    while at < end:
        item, at = _value(data, at, end, depth)
        items.append(item)
    return tuple(items)


_VARIABLE: Final[dict[str, Callable[[bytes, int, int, int], Any]]] = {
    "S": lambda data, at, end, _: data[at:end].decode("utf-8", "surrogateescape"),
    "x": lambda data, at, end, _: data[at:end],
    "A": _array,
    "F": _entries,
}
