"""Deliveries that are no longer wanted."""

from __future__ import annotations

from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import Channel
from agent.amqp.wire.tables import CodecError


class DiscardDeliveries:
    """Drops a channel's deliveries, and nothing else: they go back to their queue when it closes."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def take(self, buffer: bytearray, at: int, end: int) -> int:  # noqa: ARG002 - one frame at a time will do
        kind, _, size = frames.PREFIX.unpack_from(buffer, at)
        after: int = at + frames.OVERHEAD + size
        payload = bytes(buffer[at + 7 : after - 1])
        if kind == frames.METHOD and not methods.decode(payload).method.content:
            self._channel.received(kind, payload)
        elif kind == frames.BODY and not payload:
            raise CodecError("a body frame without a body")
        return after
