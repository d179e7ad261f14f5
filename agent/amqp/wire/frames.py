"""AMQP 0-9-1 frames around payloads."""

from __future__ import annotations

import struct
from typing import Final

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
END: Final = 0xCE
END_BYTE: Final = b"\xce"
OVERHEAD: Final = 8
PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

LARGEST: Final = 8 * 1024 * 1024  # of what the agent requests, and so of what may arrive
SMALLEST: Final = 4096  # the least that AMQP allows either side to request

PREFIX: Final = struct.Struct(">BHI")
CHANNEL: Final = struct.Struct(">H")  # the second field of it
U32: Final = struct.Struct(">I")
BASIC_HEADER: Final = struct.Struct(">HHQ")
BASIC: Final = 60


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return PREFIX.pack(kind, channel, len(payload)) + payload + END_BYTE


def content(channel: int, properties: bytes, body: bytes, frame_max: int) -> bytes:
    """A content header and as many body frames as `frame_max` (0: no limit) requires."""
    header = frame(HEADER, channel, BASIC_HEADER.pack(BASIC, 0, len(body)) + properties)
    room = frame_max - OVERHEAD if frame_max else max(1, len(body))
    bodies = (frame(BODY, channel, body[at : at + room]) for at in range(0, len(body), room))
    return b"".join([header, *bodies])
