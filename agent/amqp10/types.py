"""AMQP 1.0's types as bytes and back. Encoding chooses the smallest form, so only values come back, not their bytes.

Limits: values are nested at most 32 deep; an array whose items take no bytes (null, true, 0, ...) has at most 32, and
its items have at most one descriptor. So what a value takes in memory is in proportion to its bytes.
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
    """`constructor` is the encoding that all items share: a code; before it, if they are described, a zero and
    the descriptor. The items are then described Values. `array_of` chooses the constructor."""

    constructor: bytes
    items: tuple[Value, ...]


NULL_CODE: Final = 0x40
NULL: Final = Value("null", None)
_CONSTANTS: Final = {
    NULL_CODE: NULL,
    0x41: Value("boolean", True),
    0x42: Value("boolean", False),
    0x43: Value("uint", 0),
    0x44: Value("ulong", 0),
    0x45: Value("list", ()),
}
_FORMATS: Final = {
    "boolean": {0x56: ">?"},
    "ubyte": {0x50: ">B"},
    "ushort": {0x60: ">H"},
    "uint": {0x52: ">B", 0x70: ">I"},
    "ulong": {0x53: ">B", 0x80: ">Q"},
    "byte": {0x51: ">b"},
    "short": {0x61: ">h"},
    "int": {0x54: ">b", 0x71: ">i"},
    "long": {0x55: ">b", 0x81: ">q"},
    "float": {0x72: ">f"},
    "double": {0x82: ">d"},
    "decimal32": {0x74: "4s"},
    "decimal64": {0x84: "8s"},
    "decimal128": {0x94: "16s"},
    "char": {0x73: ">I"},
    "timestamp": {0x83: ">q"},
    "uuid": {0x98: "16s"},
}
_SIZED: Final = {
    "binary": (0xA0, 0xB0),
    "string": (0xA1, 0xB1),
    "symbol": (0xA3, 0xB3),
    "list": (0xC0, 0xD0),
    "map": (0xC1, 0xD1),
    "array": (0xE0, 0xF0),
}
"""The codes of each type, the smaller first."""
_CODES: Final = {"null": (NULL_CODE,), **{name: tuple(formats) for name, formats in _FORMATS.items()}, **_SIZED}
_FIXED: Final = {
    code: (name, struct.Struct(text), struct.calcsize(text))
    for name, formats in _FORMATS.items()
    for code, text in formats.items()
}
_VARIABLE: Final = {code: name for name, codes in _SIZED.items() for code in codes}
_TYPES: Final = {code: value.type for code, value in _CONSTANTS.items()} | {
    code: name for name, codes in _CODES.items() for code in codes
}
_SMALL: Final = {"uint": range(256), "ulong": range(256), "int": range(-128, 128), "long": range(-128, 128)}
_ZEROS: Final = {"uint": (0, b"\x43"), "ulong": (0, b"\x44"), "list": ((), b"\x45")}
_BOOLEAN: Final = 0x56
_CHECKED: Final = frozenset({_BOOLEAN, 0x72, 0x82})  # Python's values of other bytes may give other bytes back
_COMPOUND: Final = 0xC0  # and above: the size is followed by a count
_SMALL_SIZE: Final = -1
_LARGE_SIZE: Final = -4
# Of each code: the bytes of a value with its code, or minus those of its size; 0: there is no such code.
_WIDTHS: Final = [
    (0, 0, 0, 0, 1, 2, 3, 5, 9, 17, -1, -4, -1, -4, -1, -4)[code >> 4] if code in _TYPES else 0 for code in range(256)
]
_SIZE: Final = struct.Struct(">I")
_HEADS: Final = [struct.Struct(text) for text in (">BB", ">BI", ">BBB", ">BII", ">BBB", ">BII")]  # from 0xA0 on
_LARGEST: Final = {1: LARGEST_SMALL, 4: 2**32 - 1}
_new: Final = tuple.__new__  # half of what a NamedTuple's own takes


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
    if name in _ZEROS and plain == _ZEROS[name][0]:
        return _ZEROS[name][1]
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
    """The bytes that follow the size and the count, and the count."""
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
    code, descriptor, end = _constructor(constructor, 0, len(constructor), depth - 1)
    if end != len(constructor) or (code in _CONSTANTS and len(items) > MAX_ZERO_WIDTH):
        raise CodecError(f"an AMQP 1.0 array of {len(items)} items has the constructor {constructor.hex()}")
    if descriptor is not None:
        if any(item.type != "described" or item.value[0] != descriptor for item in items):
            raise CodecError("an item isn't described as its array's constructor says")
        depth, items = depth - 1, [item.value[1] for item in items]
    return constructor + b"".join([_payload(code, item, depth - 1) for item in items]), len(items)


def _sized(codes: Sequence[int], content: bytes, count: int) -> bytes:
    """A value of variable length with the first of these codes that suffices."""
    for code in codes:
        width = -_WIDTHS[code]
        numbers = (len(content),) if code < _COMPOUND else (len(content) + width, count)
        if numbers[0] <= _LARGEST[width] and count <= _LARGEST[width]:
            return _HEADS[(code >> 4) - 0xA].pack(code, *numbers) + content
    raise CodecError("a value is too large for AMQP 1.0, or for the constructor of its array")


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
    code, descriptor, at = _constructor(data, at, end, depth)
    constructor = data[start:at]
    _check_count(count, MAX_ZERO_WIDTH if code in _CONSTANTS else end - at)
    items: list[Value] = []
    for _ in range(count):
        item, at = _value(data, at, end, depth if descriptor is None else depth - 1, code=code)
        items.append(item if descriptor is None else Value("described", (descriptor, item)))
    return Array(constructor, tuple(items)), at


def _constructor(data: bytes, at: int, end: int, depth: int) -> tuple[int, Value | None, int]:
    """The code of an array's items, their descriptor, and the end of the constructor."""
    descriptor = None
    if at < end and data[at] == 0:
        _check_depth(depth)
        descriptor, at = _value(data, at + 1, end, depth - 1)
    if at >= end:
        raise CodecError(CUT_OFF)
    if data[at] not in _TYPES:
        raise CodecError(f"the items of an AMQP 1.0 array can't have the code 0x{data[at]:02x}")
    return data[at], descriptor, at + 1


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
