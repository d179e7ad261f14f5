"""A content header's properties: found by walking, decoded only for unusual messages."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from agent.amqp.wire.tables import CodecError, decode_table, short_string
from agent.core.fields import Table

_SHORT: Final = -1
_TABLE: Final = -2
_SHAPES: Final = {
    "content_type": _SHORT,
    "content_encoding": _SHORT,
    "headers": _TABLE,
    "delivery_mode": 1,
    "priority": 1,
    "correlation_id": _SHORT,
    "reply_to": _SHORT,
    "expiration": _SHORT,
    "message_id": _SHORT,
    "timestamp": 8,
    "type": _SHORT,
    "user_id": _SHORT,
    "app_id": _SHORT,
    "cluster_id": _SHORT,
}
"""By AMQP's names of the properties, from the highest flag down; a positive number is a fixed width."""
FLAGS: Final = {name: 0x8000 >> place for place, name in enumerate(_SHAPES)}
CONTENT_TYPE: Final = FLAGS["content_type"]
CONTENT_ENCODING: Final = FLAGS["content_encoding"]
HEADERS: Final = FLAGS["headers"]
EXPIRATION: Final = FLAGS["expiration"]
USER_ID: Final = FLAGS["user_id"]
TAIL_MASK: Final = 0x07FF  # of the flags after that of the headers, without the two that mean nothing
_BY_FLAG: Final = tuple(zip(FLAGS.values(), _SHAPES.values(), strict=True))
_BEHIND_HEADERS: Final = tuple((flag, shape) for flag, shape in _BY_FLAG if flag < HEADERS)
_FLAGS: Final = struct.Struct(">H")
_LENGTH: Final = struct.Struct(">I")


def _tail(flags: int) -> tuple[tuple[int, ...], int]:
    skips, fixed = [], 0
    for flag, shape in _BEHIND_HEADERS:
        if flags & flag and shape == _SHORT:
            skips.append(fixed)
            fixed = 0
        elif flags & flag:
            fixed += shape
    return tuple(skips), fixed


TAILS: Final = tuple(_tail(flags << 2) for flags in range(TAIL_MASK + 1))
"""The properties after the headers table, by `flags >> 2 & TAIL_MASK`: the bytes before each short string, and after
all."""


def end_of(data: bytes | bytearray, at: int, flags: int) -> int:
    """The end of the properties whose headers table ends at `at`; IndexError if they exceed `data`."""
    skips, fixed = TAILS[flags >> 2 & TAIL_MASK]
    for skip in skips:
        at += skip
        at += 1 + data[at]
    return at + fixed


@dataclass(frozen=True, slots=True)
class Properties:
    """The property flags, and each property's bytes as received. The two lowest flags mean nothing: brokers ignore
    them.
    """

    flags: int
    values: tuple[tuple[int, bytes], ...]

    @classmethod
    def read(cls, data: bytes) -> Properties:
        """Read properties; `data` is what follows the body size in a content header."""
        (flags,) = _FLAGS.unpack_from(data) if len(data) >= 2 else _fail("the property flags are cut off")
        values: list[tuple[int, bytes]] = []
        at = 2
        for flag, shape in _BY_FLAG:
            if flags & flag:
                after = _after(data, at, shape)
                values.append((flag, data[at:after]))
                at = after
        if at != len(data):
            _fail("there are bytes after the last property")
        return cls(flags, tuple(values))

    @property
    def headers(self) -> Table:
        return decode_table(self.raw_headers)[0]

    @property
    def raw_headers(self) -> bytes:
        """The table with its length; an empty table if there is none."""
        return self.get(HEADERS) or b"\0\0\0\0"

    def get(self, flag: int) -> bytes | None:
        """One property's bytes; None if there is no such property."""
        return next((value for each, value in self.values if each == flag), None)

    def with_raw_headers(self, table: bytes) -> Properties:
        others = (pair for pair in self.values if pair[0] != HEADERS)
        return Properties(self.flags | HEADERS, tuple(sorted([*others, (HEADERS, table)], reverse=True)))

    def with_first_headers(self, entries: bytes) -> Properties:
        """The properties with more headers before all others; `entries` are name, tag and value each."""
        standing = self.raw_headers[4:]
        return self.with_raw_headers(b"".join([_LENGTH.pack(len(entries) + len(standing)), entries, standing]))

    def replaced(self, values: tuple[tuple[int, bytes], ...]) -> Properties:
        """The properties with these (flag and bytes) added, or in place of what is there."""
        merged = dict(self.values) | dict(values)
        flags = self.flags
        for flag in merged:
            flags |= flag
        return Properties(flags, tuple(sorted(merged.items(), reverse=True)))

    def lacking(self, flag: int) -> Properties:
        """The properties without this one."""
        return Properties(self.flags & ~flag, tuple(pair for pair in self.values if pair[0] != flag))

    def write(self) -> bytes:
        return _FLAGS.pack(self.flags) + b"".join(value for _, value in self.values)


def encode(name: str, value: str | int) -> tuple[int, bytes]:
    """The flag and the bytes of one property other than the headers; raise CodecError if it can't have that value."""
    flag, shape = FLAGS[name], _SHAPES[name]
    if isinstance(value, str) and shape == _SHORT:
        return flag, short_string(value)
    if isinstance(value, int) and shape > 0 and 0 <= value < 1 << 8 * shape:
        return flag, value.to_bytes(shape, "big")
    raise CodecError(f"the property {name} has no bytes for {value!r}")


def _after(data: bytes, at: int, shape: int) -> int:
    if shape == _TABLE:
        after = at + 4 + int.from_bytes(data[at : at + 4], "big")
    elif shape == _SHORT:
        after = at + 1 + data[at] if at < len(data) else len(data) + 1
    else:
        after = at + shape
    if after > len(data):
        _fail("a property is cut off")
    return after


def _fail(why: str) -> tuple[int]:
    raise CodecError(why)
