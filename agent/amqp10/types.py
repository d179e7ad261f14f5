"""AMQP 1.0's types as bytes and back. Encoding chooses the smallest form, so only values come back, not their bytes.

Limits: values are nested at most 32 deep; an array of elements that take no bytes (null, true, 0, ...) has at most 32.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from agent.amqp.wire.tables import CodecError

MAX_DEPTH: Final = 32
MAX_ZERO_WIDTH: Final = 32  # else ten bytes become 2**32 objects
LARGEST_SMALL: Final = 255  # size or count of one byte
CUT_OFF: Final = "an AMQP 1.0 value is cut off"


class Value(NamedTuple):
    """`type` is AMQP's own name of it, and `value` is

    - null: None; boolean: bool; all integers, char (its code point) and timestamp (ms): int;
    - float, double: float, or bytes where a float wouldn't give the same bytes back (some NaNs);
    - decimal32, decimal64, decimal128, uuid, binary: bytes;
    - string, symbol: str, in which surrogates stand for bytes that aren't UTF-8;
    - list: a tuple of Values; map: a tuple of pairs of Values, in their order, with duplicates; array: an `Array`;
    - described: the descriptor and what it describes, both Values.
    """

    type: str
    value: Any


class Array(NamedTuple):
    """`constructor` is the encoding that all items share: a code, or a zero, a descriptor and a constructor. Items of
    an array of a described type are described Values. `array_of` chooses the constructor."""

    constructor: bytes
    items: tuple[Value, ...]


NULL_CODE: Final = 0x40
NULL: Final = Value("null", None)
_TRUE: Final = Value("boolean", True)
_FALSE: Final = Value("boolean", False)

_CONSTANTS: Final = {
    NULL_CODE: NULL,
    0x41: _TRUE,
    0x42: _FALSE,
    0x43: Value("uint", 0),
    0x44: Value("ulong", 0),
    0x45: Value("list", ()),
}
_NUMBERS: Final = {
    0x50: ("ubyte", struct.Struct(">B")),
    0x51: ("byte", struct.Struct(">b")),
    0x52: ("uint", struct.Struct(">B")),
    0x53: ("ulong", struct.Struct(">B")),
    0x54: ("int", struct.Struct(">b")),
    0x55: ("long", struct.Struct(">b")),
    0x56: ("boolean", struct.Struct(">?")),
    0x60: ("ushort", struct.Struct(">H")),
    0x61: ("short", struct.Struct(">h")),
    0x70: ("uint", struct.Struct(">I")),
    0x71: ("int", struct.Struct(">i")),
    0x72: ("float", struct.Struct(">f")),
    0x73: ("char", struct.Struct(">I")),
    0x74: ("decimal32", struct.Struct("4s")),
    0x80: ("ulong", struct.Struct(">Q")),
    0x81: ("long", struct.Struct(">q")),
    0x82: ("double", struct.Struct(">d")),
    0x83: ("timestamp", struct.Struct(">q")),
    0x84: ("decimal64", struct.Struct("8s")),
    0x94: ("decimal128", struct.Struct("16s")),
    0x98: ("uuid", struct.Struct("16s")),
}
_FIXED: Final = {code: (name, number, number.size) for code, (name, number) in _NUMBERS.items()}
_VARIABLE: Final = {
    0xA0: "binary",
    0xA1: "string",
    0xA3: "symbol",
    0xB0: "binary",
    0xB1: "string",
    0xB3: "symbol",
    0xC0: "list",
    0xC1: "map",
    0xD0: "list",
    0xD1: "map",
    0xE0: "array",
    0xF0: "array",
}
_TYPES: Final = {
    **{code: value.type for code, value in _CONSTANTS.items()},
    **{code: name for code, (name, _, _) in _FIXED.items()},
    **_VARIABLE,
}
_CODES: Final = {
    name: tuple(code for code in sorted(_TYPES) if _TYPES[code] == name and (code >= 0x50 or name == "null"))
    for name in _TYPES.values()
}
"""The codes of each type with the smallest first, without those that stand for a single value."""
_SMALL: Final = {"uint": range(256), "ulong": range(256), "int": range(-128, 128), "long": range(-128, 128)}
_ZEROS: Final = {"uint": b"\x43", "ulong": b"\x44", "list": b"\x45"}  # of 0 and ()
_BOOLEAN: Final = 0x56
_CHECKED: Final = frozenset({_BOOLEAN, 0x72, 0x82})  # Python's values of other bytes may give other bytes back
_SMALL_SIZE: Final = -1
_LARGE_SIZE: Final = -4
_COMPOUND: Final = 0xC0  # and above: the size is followed by a count
_new: Final = tuple.__new__  # half of what a NamedTuple's own takes
_SIZE: Final = struct.Struct(">I")
_SIZE_AND_COUNT: Final = struct.Struct(">II")
# Of each code: the bytes of a value with its code, or minus those of its size; 0: there is no such code.
_WIDTHS: Final = [
    (0, 0, 0, 0, 1, 2, 3, 5, 9, 17, -1, -4, -1, -4, -1, -4)[code >> 4] if code in _TYPES else 0 for code in range(256)
]


def encode(value: Value) -> bytes:
    """The smallest encoding; `CodecError` if the type has no such value."""
    try:
        return _encode(value, MAX_DEPTH)
    except (struct.error, OverflowError, UnicodeError) as error:
        raise CodecError(f"AMQP 1.0 can't encode this {value.type}: {error}") from error


def encode_list(items: Sequence[bytes]) -> bytes:
    """A list of values that are encoded already."""
    return _sized((0xC0, 0xD0), b"".join(items), len(items)) if items else b"\x45"


def find_list(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """Of the list at `at`, which may reach to `end`: its count, where its first item begins, and its end."""
    code = data[at] if at < end else None
    if code not in {0x45, 0xC0, 0xD0}:
        raise CodecError(CUT_OFF if code is None else f"the AMQP 1.0 code 0x{code:02x} in place of a list")
    if code == 0x45:
        return 0, at + 1, at + 1
    size, at = _number(code, data, at + 1, end)
    after = at + size
    if after > end:
        raise CodecError(CUT_OFF)
    count, at = _number(code, data, at, after)
    return count, at, after


def array_of(name: str, plain: Iterable[Any]) -> Value:
    """An array of these values of one type, with the smallest constructor that suits all."""
    items = tuple(Value(name, each) for each in plain)
    for code in _CODES.get(name, ()):
        value = Value("array", Array(bytes((code,)), items))
        try:
            encode(value)
        except CodecError:
            if code == _CODES[name][-1]:
                raise
        else:
            return value
    raise CodecError(f"AMQP 1.0 has no type {name!r}")


def _encode(value: Value, depth: int) -> bytes:
    name, plain = value
    if name == "described":
        _check_depth(depth)
        return b"\0" + _encode(plain[0], depth - 1) + _encode(plain[1], depth - 1)
    if name == "boolean":
        return b"\x41" if plain else b"\x42"
    if not plain and name in _ZEROS:
        return _ZEROS[name]
    codes = _CODES.get(name)
    if codes is None:
        raise CodecError(f"AMQP 1.0 has no type {name!r}")
    if codes[0] in _VARIABLE:
        return _sized(codes, *_content(value, depth))
    code = codes[0] if name not in _SMALL or plain in _SMALL[name] else codes[-1]
    return bytes((code,)) + _payload(code, value, depth)


def _payload(code: int, value: Value, depth: int) -> bytes:
    """The bytes that follow the code."""
    name, plain = value
    if _TYPES.get(code) != name:
        raise CodecError(f"a value of type {name} is no item of an array with the code 0x{code:02x}")
    if code in _CONSTANTS:
        if plain != _CONSTANTS[code].value:
            raise CodecError(f"an item isn't the only value of its array's code 0x{code:02x}")
        return b""
    if code in _VARIABLE:
        return _sized((code,), *_content(value, depth))[1:]
    number = _FIXED[code][1]
    if not isinstance(plain, bytes):
        return number.pack(plain)
    if len(plain) != number.size:
        raise CodecError(f"a {name} has {number.size} bytes")
    return plain


def _content(value: Value, depth: int) -> tuple[bytes, int]:
    """What follows the size and the count, and the count."""
    name, plain = value
    if name == "binary":
        return plain, 0
    if name in {"string", "symbol"}:
        return plain.encode("utf-8", "surrogateescape"), 0
    _check_depth(depth)
    if name == "list":
        return b"".join([_encode(item, depth - 1) for item in plain]), len(plain)
    if name == "map":
        return b"".join([_encode(item, depth - 1) for pair in plain for item in pair]), 2 * len(plain)
    constructor, items = plain
    code, descriptors, end = _constructor(constructor, 0, len(constructor), depth - 1)
    if end != len(constructor):
        raise CodecError("an array's constructor is followed by something else")
    payloads = [_payload(code, _undescribed(item, descriptors), depth - 1 - len(descriptors)) for item in items]
    _check_count(len(items), MAX_ZERO_WIDTH if code in _CONSTANTS else len(items))
    return constructor + b"".join(payloads), len(items)


def _undescribed(item: Value, descriptors: list[Value]) -> Value:
    for descriptor in descriptors:
        if item.type != "described" or item.value[0] != descriptor:
            raise CodecError("an array's item isn't described as the array's constructor says")
        item = item.value[1]
    return item


def _sized(codes: Sequence[int], content: bytes, count: int) -> bytes:
    """A value of variable length in the first of its encodings that is large enough."""
    size = len(content)
    for code in codes:
        is_small = _WIDTHS[code] == _SMALL_SIZE
        if code < _COMPOUND:
            if not is_small:
                return bytes((code,)) + _SIZE.pack(size) + content
            if size <= LARGEST_SMALL:
                return bytes((code, size)) + content
        elif not is_small:
            return bytes((code,)) + _SIZE_AND_COUNT.pack(size + 4, count) + content
        elif size < LARGEST_SMALL and count <= LARGEST_SMALL:
            return bytes((code, size + 1, count)) + content
    raise CodecError("an array's item is too large for the array's constructor")


def decode(data: bytes, at: int = 0, *, end: int | None = None) -> tuple[Value, int]:
    """The value at `at`, which may reach to `end`, and where it ends."""
    return _value(data, at, len(data) if end is None or end > len(data) else end, MAX_DEPTH)


def skip(data: bytes, at: int) -> int:
    """The end of the value at `at`, by its size alone: what is inside may still be wrong."""
    values, described = 1, 0
    try:
        while values:
            width = _WIDTHS[data[at]]
            if width > 0:
                at += width
            elif width == _SMALL_SIZE:
                at += 2 + data[at + 1]
            elif width == _LARGE_SIZE:
                at += 5 + _SIZE.unpack_from(data, at + 1)[0]
            elif data[at]:
                raise CodecError(f"unknown AMQP 1.0 code 0x{data[at]:02x}")
            else:
                described += 1
                _check_depth(MAX_DEPTH + 1 - described)
                at += 1
                values += 2
            values -= 1
    except (IndexError, struct.error) as error:
        raise CodecError(CUT_OFF) from error
    if at > len(data):
        raise CodecError(CUT_OFF)
    return at


def _value(data: bytes, at: int, end: int, depth: int, *, code: int = 0) -> tuple[Value, int]:
    """The value at `at`; with a `code`, an array's item, which has none itself."""
    if not code:
        if at >= end:
            raise CodecError(CUT_OFF)
        code = data[at]
        at += 1
    if code in _FIXED:
        name, number, size = _FIXED[code]
        after = at + size
        if after > end:
            raise CodecError(CUT_OFF)
        (plain,) = number.unpack_from(data, at)
        if code in _CHECKED and number.pack(plain) != data[at:after]:
            if code == _BOOLEAN:
                raise CodecError("an AMQP 1.0 boolean is neither 0 nor 1")
            plain = data[at:after]
        return _new(Value, (name, plain)), after
    if code in _VARIABLE:
        return _sized_value(code, data, at, end, depth=depth)
    if code in _CONSTANTS:
        return _CONSTANTS[code], at
    if code:
        raise CodecError(f"unknown AMQP 1.0 code 0x{code:02x}")
    _check_depth(depth)
    descriptor, at = _value(data, at, end, depth - 1)
    value, at = _value(data, at, end, depth - 1)
    return Value("described", (descriptor, value)), at


def _sized_value(code: int, data: bytes, at: int, end: int, *, depth: int) -> tuple[Value, int]:
    name = _VARIABLE[code]
    size, at = _number(code, data, at, end)
    after = at + size
    if after > end:
        raise CodecError(CUT_OFF)
    if name == "binary":
        return _new(Value, (name, data[at:after])), after
    if code < _COMPOUND:
        return _new(Value, (name, data[at:after].decode("utf-8", "surrogateescape"))), after
    _check_depth(depth)
    count, at = _number(code, data, at, after)
    plain: Any
    if name == "array":
        plain, at = _read_array(data, at, after, count=count, depth=depth - 1)
    else:
        plain, at = _read_items(data, at, after, count=count, depth=depth - 1)
    if at != after:
        raise CodecError(f"an AMQP 1.0 {name} is longer than its {count} items")
    if name == "map":
        if count % 2:
            raise CodecError("an AMQP 1.0 map has a key without a value")
        plain = tuple(zip(plain[::2], plain[1::2], strict=True))
    return Value(name, plain), after


def _read_items(data: bytes, at: int, end: int, *, count: int, depth: int) -> tuple[tuple[Value, ...], int]:
    _check_count(count, end - at)
    items: list[Value] = []
    for _ in range(count):
        item, at = _value(data, at, end, depth)
        items.append(item)
    return tuple(items), at


def _read_array(data: bytes, at: int, end: int, *, count: int, depth: int) -> tuple[Array, int]:
    start = at
    code, descriptors, at = _constructor(data, at, end, depth)
    constructor = data[start:at]
    _check_count(count, MAX_ZERO_WIDTH if code in _CONSTANTS else end - at)
    items: list[Value] = []
    for _ in range(count):
        item, at = _value(data, at, end, depth - len(descriptors), code=code)
        for descriptor in reversed(descriptors):
            item = Value("described", (descriptor, item))
        items.append(item)
    return Array(constructor, tuple(items)), at


def _constructor(data: bytes, at: int, end: int, depth: int) -> tuple[int, list[Value], int]:
    """The code of an array's items, their descriptors (the outer ones first), and the end of the constructor."""
    descriptors: list[Value] = []
    while at < end and data[at] == 0:
        _check_depth(depth - len(descriptors))
        descriptor, at = _value(data, at + 1, end, depth - 1 - len(descriptors))
        descriptors.append(descriptor)
    if at >= end:
        raise CodecError(CUT_OFF)
    if data[at] not in _TYPES:
        raise CodecError(f"unknown AMQP 1.0 code 0x{data[at]:02x}")
    return data[at], descriptors, at + 1


def _check_count(count: int, largest: int) -> None:
    if count > largest:
        raise CodecError(f"an AMQP 1.0 list, map or array of {count} items has room for {largest}")


def _check_depth(depth: int) -> None:
    if depth <= 0:
        raise CodecError(f"AMQP 1.0 values are nested more than {MAX_DEPTH} deep")


def _number(code: int, data: bytes, at: int, end: int) -> tuple[int, int]:
    """A size or count, and its end."""
    if _WIDTHS[code] == _SMALL_SIZE and at < end:
        return data[at], at + 1
    if at + 4 > end:
        raise CodecError(CUT_OFF)
    return _SIZE.unpack_from(data, at)[0], at + 4
