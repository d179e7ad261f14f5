"""A queue of a hostile upstream: what is in it is delivered as a decent broker does, again until it is acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.amqp.wire import frames, methods
from agent.amqp.wire.methods import Call
from tests.hostile.peer import FRAME_MAX, Peer

NO_PROPERTIES: Final = b"\0\0"


def table(entries: bytes) -> bytes:
    """The properties that hold nothing but headers, of these bytes."""
    return b"\x20\0" + len(entries).to_bytes(4, "big") + entries


@dataclass(frozen=True)
class Message:
    body: bytes
    properties: bytes = NO_PROPERTIES
    class_id: int = frames.BASIC


@dataclass
class Backlog:
    """The behaviour of a `HostileBroker`; the messages outlive connections."""

    messages: Sequence[Message]
    acknowledged: set[int] = field(default_factory=set)  # by place in `messages`
    deliveries: int = 0
    has_quarantine: bool = True  # whether what is published is confirmed

    async def __call__(self, peer: Peer) -> None:
        consumer = _Consumer(self, peer)
        await peer.log_in()
        await peer.serve(
            {
                methods.BASIC_QOS: consumer.limit,
                methods.BASIC_CONSUME: consumer.begin,
                methods.BASIC_ACK: consumer.settle,
                methods.BASIC_NACK: consumer.settle,
            },
            confirms=self.has_quarantine,
        )


@dataclass
class _Consumer:
    """Of one connection; what it has unsettled is delivered again to the next."""

    backlog: Backlog
    peer: Peer
    prefetch: int = 0
    last: int = 0
    unsettled: dict[int, int] = field(default_factory=dict)  # delivery tag -> place

    async def limit(self, peer: Peer, channel: int, call: Call) -> None:
        self.prefetch = call["prefetch_count"]
        await peer.answer(channel, call)

    async def begin(self, peer: Peer, channel: int, call: Call) -> None:
        await peer.answer(channel, call)
        await self._deliver(channel)

    async def settle(self, peer: Peer, channel: int, call: Call) -> None:  # noqa: ARG002 - an `Answer`
        tag = call["delivery_tag"]
        tags = [each for each in self.unsettled if each <= tag] if call["multiple"] else [tag]
        places = [self.unsettled.pop(each) for each in tags]
        if call.method is methods.BASIC_ACK:
            self.backlog.acknowledged.update(places)
        await self._deliver(channel)

    async def _deliver(self, channel: int) -> None:
        waiting = self.backlog.acknowledged | set(self.unsettled.values())
        for place, message in enumerate(self.backlog.messages):
            if len(self.unsettled) >= self.prefetch > 0:
                return
            if place not in waiting:
                self.last += 1
                self.unsettled[self.last] = place
                self.backlog.deliveries += 1
                await self.peer.send(self._frames(channel, message))

    def _frames(self, channel: int, message: Message) -> bytes:
        delivery = methods.BASIC_DELIVER.encode(
            consumer_tag=self.peer.consumers[channel], delivery_tag=self.last, exchange="x", routing_key="k"
        )
        header = frames.BASIC_HEADER.pack(message.class_id, 0, len(message.body)) + message.properties
        content = frames.frame(frames.HEADER, channel, header)
        room = FRAME_MAX - frames.OVERHEAD
        bodies = (message.body[at : at + room] for at in range(0, len(message.body), room))
        return b"".join(
            [
                frames.frame(frames.METHOD, channel, delivery),
                content,
                *(frames.frame(frames.BODY, channel, body) for body in bodies),
            ]
        )
