"""AMQP 1.0 frames around bodies, and the headers that begin a connection."""

from __future__ import annotations

import struct
from typing import Final

from agent.amqp.wire.tables import CodecError

AMQP: Final = 0
SASL: Final = 1

PROTOCOL_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"

PREFIX: Final = struct.Struct(">IBBH")  # size, data offset in words of 4 bytes, type, channel
OVERHEAD: Final = 8
SMALLEST: Final = 512  # the least max-frame-size that AMQP allows
EMPTY: Final = PREFIX.pack(OVERHEAD, 2, AMQP, 0)  # the heartbeat


def frame(channel: int, body: bytes, kind: int = AMQP) -> bytes:
    return PREFIX.pack(OVERHEAD + len(body), 2, kind, channel) + body


def find_frame(data: bytes, at: int, largest: int) -> tuple[int, int, int, int] | None:
    """Of the frame at `at`: type, channel, where its body begins, and its end; None if it isn't there as a whole."""
    if at + OVERHEAD > len(data):
        return None
    size, offset, kind, channel = PREFIX.unpack_from(data, at)
    if size > largest:
        raise CodecError(f"a frame of {size} bytes is larger than the {largest} that were agreed")
    if offset < 2 or 4 * offset > size:
        raise CodecError(f"a frame of {size} bytes can't begin its body at byte {4 * offset}")
    if kind > SASL:
        raise CodecError(f"unknown frame type {kind}")
    if at + size > len(data):
        return None
    return kind, channel, at + 4 * offset, at + size
