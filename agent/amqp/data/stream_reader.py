"""Takes the offset out of what a stream delivers, before anything else sees it.

A broker puts the header `x-stream-offset` into the table of each delivery. What comes is copied without these bytes,
and goes the way of all deliveries then, at its speed; messages are not decoded here either.
"""

from __future__ import annotations

import struct
from typing import Final, Protocol

from agent.amqp.data import header_table
from agent.amqp.data.header_table import Names
from agent.amqp.wire import frames
from agent.amqp.wire.frames import U32
from agent.amqp.wire.properties import CONTENT_ENCODING, CONTENT_TYPE, HEADERS
from agent.amqp.wire.tables import CodecError, short_string
from agent.core.links.confirms import StreamOffsets
from agent.core.model import STREAM_OFFSET

_NAME: Final = Names(STREAM_OFFSET)
_ENTRY: Final = short_string(STREAM_OFFSET) + b"l"
_LONG: Final = ord("l")
_SIZE: Final = len(_ENTRY) + 8
_PREFIX: Final = frames.PREFIX
_U64: Final = struct.Struct(">Q")
_FLAGS: Final = struct.Struct(">H")
_TO_FLAGS: Final = 19  # from a header frame's start
_TO_PROPERTIES: Final = 21


class TakesFrames(Protocol):
    def take(self, buffer: bytearray, at: int, end: int) -> int:
        """Consume whole frames of a channel from `at` on; return where it stopped."""


class StreamReader:
    """Between the channel of this number, which has consumed from nothing but one stream, and what takes its
    deliveries."""

    __slots__ = ("_inner", "_number", "_offsets", "_tag")

    def __init__(self, number: int, inner: TakesFrames, offsets: StreamOffsets) -> None:
        self._number = number
        self._inner = inner
        self._offsets = offsets
        self._tag = 0  # of the last delivery; they are counted, since `inner` refuses any other order

    def take(self, buffer: bytearray, at: int, end: int) -> int:
        """Consume whole frames of the channel from `at` on; return where it stopped."""
        prefix, number, overhead = _PREFIX.unpack_from, self._number, frames.OVERHEAD
        view = memoryview(buffer)
        kept: list[memoryview] = []
        begun = at
        while end - at >= overhead:
            kind, of_channel, size = prefix(buffer, at)
            after: int = at + overhead + size
            if of_channel != number or after > end:
                break
            if kind == frames.HEADER:
                self._tag += 1
                found = self._without_offset(buffer, at, after)
                if found is not None:
                    kept.append(view[begun : found[0]])
                    begun = found[1]
            at = after
        kept.append(view[begun:at])
        data = bytearray().join(kept)
        self._inner.take(data, 0, len(data))
        return at

    def _without_offset(self, buffer: bytearray, at: int, after: int) -> tuple[int, int] | None:
        """Note the offset in a header frame, and correct the frame's lengths as if the bytes between the two positions
        that are returned weren't there. None if there is no offset that can be read."""
        where, last = at + _TO_PROPERTIES, after - 1
        try:
            (flags,) = _FLAGS.unpack_from(buffer, at + _TO_FLAGS)
            if flags & CONTENT_TYPE:
                where += 1 + buffer[where]
            if flags & CONTENT_ENCODING:
                where += 1 + buffer[where]
            (length,) = U32.unpack_from(buffer, where)
        except (IndexError, struct.error):
            return None
        table, past = where + 4, where + 4 + length
        if not flags & HEADERS or past > last:
            return None
        begin = _find(buffer, table, past)
        if begin is None:
            return None
        (offset,) = _U64.unpack_from(buffer, begin + len(_ENTRY))
        self._offsets.note(self._tag, offset)
        cut = begin, begin + _SIZE
        if length == _SIZE:  # published without headers
            _FLAGS.pack_into(buffer, at + _TO_FLAGS, flags & ~HEADERS)
            cut = where, past
        else:
            U32.pack_into(buffer, where, length - _SIZE)
        _PREFIX.pack_into(buffer, at, frames.HEADER, self._number, after - at - frames.OVERHEAD - (cut[1] - cut[0]))
        return cut


def _find(buffer: bytearray, table: int, past: int) -> int | None:
    """The beginning of the entry. Of a stream each table has one. So if these bytes are found first at the table's
    beginning, or at its end and nowhere before, they are that entry; elsewhere they may be a part of a value."""
    begin = buffer.find(_ENTRY, table, past)
    if begin < 0 or begin + _SIZE > past:
        return None
    if begin in {table, past - _SIZE}:
        return begin
    data = bytes(buffer[table - 4 : past])
    try:
        found = header_table.find(data, _NAME)
    except CodecError:
        return None
    return table - 4 + found.begin if found is not None and data[found.value] == _LONG else None
