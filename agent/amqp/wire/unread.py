"""What has come from a peer and isn't handed out, since nothing is taken from it for a while: how much that is."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Final

from agent.amqp.wire import frames

MOST_UNREAD: Final = 1024 * 1024  # bytes of a connection; more stays in the socket
_IDS: Final = struct.Struct(">I")
_DELIVER: Final = 60 << 16 | 60
_CLOSE: Final = 10 << 16 | 50


class Unread:
    """The frames from the beginning of a buffer on, which only grows meanwhile."""

    def __init__(self) -> None:
        self.deliveries: Counter[int] = Counter()  # by channel
        self._counted_to = 0

    def look(self, buffer: bytearray, end: int) -> bytes | None:
        """Counts what is new; answers the payload by which the peer closes the connection, if it is there."""
        at = self._counted_to
        try:
            while end - at >= frames.OVERHEAD:
                kind, channel, size = frames.PREFIX.unpack_from(buffer, at)
                after = at + frames.OVERHEAD + size
                if after > end:
                    break
                if kind == frames.METHOD and size >= _IDS.size:
                    (ids,) = _IDS.unpack_from(buffer, at + 7)
                    self.deliveries[channel] += ids == _DELIVER
                    if ids == _CLOSE and not channel:
                        return bytes(buffer[at + 7 : after - 1])
                at = after
        finally:
            self._counted_to = at
        return None
