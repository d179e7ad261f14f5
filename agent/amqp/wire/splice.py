"""The data path: deliveries in, publishes out, without making objects of messages.

One pass over what a `recv` brought: for a delivery the prebuilt publish of its routing key goes out, the content
header grows by one prebuilt entry, bodies are copied as they are. What is out of the ordinary (a header that is
there already, a user id, frames too large for the other side) takes the exact path in `rewrite`.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import Channel
from agent.amqp.wire.properties import HEADERS, Properties
from agent.amqp.wire.tables import CodecError
from agent.core.confirms import Confirms
from agent.core.model import AckMode

_DELIVER: Final = 60 << 16 | 60
_ACK: Final = 60 << 16 | 80
_NACK: Final = 60 << 16 | 120
_U32: Final = struct.Struct(">I")
_TAG_AND_FLAG: Final = struct.Struct(">QB")
_SIZE_AND_FLAGS: Final = struct.Struct(">QH")
_FLAGS: Final = struct.Struct(">H")
_ACK_FRAME: Final = struct.Struct(">BHIHHQBB")
_NOT_SPLICED: Final = 0x0013  # a user id, and flags that AMQP 0-9-1 doesn't know
_MAX_KEYS: Final = 10_000


@dataclass(slots=True)
class Counts:
    """What went through a link since it was made; the board reads it."""

    forwarded: int = 0
    bytes: int = 0
    redelivered: int = 0
    returned: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


class Rewriter(Protocol):
    """What a kind of link adds to messages."""

    def entry(self, *, redelivered: bool) -> bytes:
        """The header as bytes (name, tag, value), for a message that has none of it yet."""

    @property
    def trusts(self) -> int:
        """The property flags that pass although they are out of the ordinary."""

    @property
    def mark(self) -> bytes:
        """The header's name as it stands in a table; where it is found, `rewrite` decides."""

    def rewrite(self, properties: Properties, *, redelivered: bool) -> Properties | str:
        """The properties to publish with, or why the message is dropped."""


class Outlet(Protocol):
    """The connection that publishes go to."""

    frame_max: int

    def write_soon(self, data: bytes) -> None: ...


class Source:
    """The upstream channel's frames, and what becomes of them downstream."""

    def __init__(self, channel: Channel, target: Target, rewriter: Rewriter, *, exchange: str, mandatory: bool) -> None:
        self._channel = channel
        self._target = target
        self._rewriter = rewriter
        self._entries = (rewriter.entry(redelivered=False), rewriter.entry(redelivered=True))
        self._mark = rewriter.mark
        self._acknowledges_at_once = target.acknowledges_at_once
        self._unusual = _NOT_SPLICED & ~rewriter.trusts
        self._exchange = exchange
        self._mandatory = mandatory
        self._publishes: dict[bytes, bytes] = {}
        self._room = (target.outlet.frame_max or 2**31) - frames.OVERHEAD
        self._tag = 0
        self._redelivered = 0
        self._publish = b""
        self._awaits_header = False
        self._missing = 0
        self._skips = False

    def take(self, buffer: bytearray, at: int, end: int) -> int:
        """Consumes whole frames of this channel from `at` on; answers where it stopped."""
        out: list[bytes | bytearray] = []
        prefix = frames.PREFIX.unpack_from
        number = self._channel.number
        # Publishing on a closed channel would cost the whole connection; upstream keeps what is not acknowledged.
        is_open = self._target.is_open
        while end - at >= frames.OVERHEAD:
            kind, of_channel, size = prefix(buffer, at)
            after = at + frames.OVERHEAD + size
            if of_channel != number or after > end:
                break
            if buffer[after - 1] != frames.END:
                raise CodecError("a frame doesn't end where it says")
            if kind == frames.BODY and self._missing:
                self._body(out, buffer, at, after)
            elif kind == frames.HEADER:
                self._header(out, buffer, at, after)
            elif size >= 4 and _U32.unpack_from(buffer, at + 7)[0] == _DELIVER:
                self._deliver(buffer, at)
            else:
                self._channel.received(kind, bytes(buffer[at + 7 : after - 1]))
            at = after
        if out and is_open:
            self._target.outlet.write_soon(b"".join(out))
            if self._acknowledges_at_once:
                self._target.acknowledge()
        return at

    def _deliver(self, buffer: bytearray, at: int) -> None:
        where = at + 12 + buffer[at + 11]
        self._tag, self._redelivered = _TAG_AND_FLAG.unpack_from(buffer, where)
        where += 9
        where += 1 + buffer[where]
        key = bytes(buffer[where : where + 1 + buffer[where]])
        self._publish = self._publishes.get(key) or self._publish_for(key)
        self._awaits_header = True

    def _publish_for(self, key: bytes) -> bytes:
        """The whole publish frame for a routing key (with its length in front); kept, since keys repeat."""
        if len(self._publishes) >= _MAX_KEYS:
            self._publishes.clear()
        payload = methods.BASIC_PUBLISH.encode(exchange=self._exchange, mandatory=self._mandatory)
        head, flags = payload[:-2], payload[-1:]  # between them stands the empty key
        made = frames.frame(frames.METHOD, self._target.number, head + key + flags)
        self._publishes[key] = made
        return made

    def _header(self, out: list[bytes | bytearray], buffer: bytearray, at: int, after: int) -> None:
        if not self._awaits_header:
            self._channel.received(frames.HEADER, bytes(buffer[at + 7 : after - 1]))
            return
        self._awaits_header = False
        body_size, flags = _SIZE_AND_FLAGS.unpack_from(buffer, at + 11)
        self._missing = body_size
        spliced = None if flags & self._unusual else self._spliced(buffer, at, after, flags=flags)
        header = spliced or self._rewritten(buffer, at, after)
        if header is None:
            self._skips = True
        else:
            out.append(self._publish)
            out.extend(header)
            self._target.published(self._tag, body_size, redelivered=self._redelivered)
        if not body_size:
            self._skips = False

    def _spliced(self, buffer: bytearray, at: int, after: int, *, flags: int) -> tuple[bytes | bytearray, ...] | None:
        """The header with the entry put in, or nothing where it has to be looked at closely."""
        entry = self._entries[self._redelivered & 1]
        where = at + 21
        if flags & 0x8000:
            where += 1 + buffer[where]
        if flags & 0x4000:
            where += 1 + buffer[where]
        size = after - at - frames.OVERHEAD + len(entry)
        if flags & HEADERS:
            length = _U32.unpack_from(buffer, where)[0]
            if size > self._room or buffer.find(self._mark, where + 4, where + 4 + length) >= 0:
                return None
            return (
                frames.PREFIX.pack(frames.HEADER, self._target.number, size),
                buffer[at + 7 : where],
                _U32.pack(length + len(entry)),
                entry,
                buffer[where + 4 : after],
            )
        size += 4
        if size > self._room:
            return None
        return (
            frames.PREFIX.pack(frames.HEADER, self._target.number, size),
            buffer[at + 7 : at + 19],
            _FLAGS.pack(flags | HEADERS),
            buffer[at + 21 : where],
            _U32.pack(len(entry)),
            entry,
            buffer[where:after],
        )

    def _rewritten(self, buffer: bytearray, at: int, after: int) -> tuple[bytes, ...] | None:
        """The exact path; nothing where the message isn't to go on."""
        properties = Properties.read(bytes(buffer[at + 19 : after - 1]))
        found = self._rewriter.rewrite(properties, redelivered=bool(self._redelivered))
        if isinstance(found, str):
            self._target.dropped(self._tag, found)
            return None
        payload = bytes(buffer[at + 7 : at + 19]) + found.write()
        return (frames.frame(frames.HEADER, self._target.number, payload),)

    def _body(self, out: list[bytes | bytearray], buffer: bytearray, at: int, after: int) -> None:
        size = after - at - frames.OVERHEAD
        self._missing -= size
        if self._missing < 0:
            raise CodecError("a body is longer than its header says")
        if not self._skips:
            number = self._target.number
            if size <= self._room:
                out.append(frames.PREFIX.pack(frames.BODY, number, size))
                out.append(buffer[at + 7 : after])
            else:
                body = bytes(buffer[at + 7 : after - 1])
                out.extend(
                    frames.frame(frames.BODY, number, body[cut : cut + self._room])
                    for cut in range(0, size, self._room)
                )
        if not self._missing:
            self._skips = False


class Target:
    """The downstream channel: what was published on it, what the broker said to it, what may be acknowledged."""

    def __init__(
        self,
        channel: Channel,
        outlet: Outlet,
        counts: Counts,
        *,
        ack_mode: AckMode,
        settle: Callable[[bytes], None],
    ) -> None:
        self.outlet = outlet
        self.number = channel.number
        self.confirms = Confirms()
        self.upstream_number = 0
        self._channel = channel
        self._counts = counts
        self._ack_mode = ack_mode
        self._settle = settle
        self._quiet: asyncio.Future[None] | None = None

    @property
    def acknowledges_at_once(self) -> bool:
        return self._ack_mode is AckMode.ON_PUBLISH

    @property
    def is_open(self) -> bool:
        return not self._channel.closed.done()

    def published(self, tag: int, size: int, *, redelivered: int) -> None:
        counts = self._counts
        if self._ack_mode is AckMode.ON_CONFIRM:
            self.confirms.published(tag)
        else:
            counts.forwarded += 1
            self.confirms.dropped(tag)
        counts.bytes += size
        if redelivered:
            counts.redelivered += 1

    def dropped(self, tag: int, reason: str) -> None:
        self.confirms.dropped(tag)
        self._counts.dropped[reason] = self._counts.dropped.get(reason, 0) + 1
        self.acknowledge()

    def take(self, buffer: bytearray, at: int, end: int) -> int:
        """Consumes whole frames of the downstream channel: confirms quickly, everything else by the channel."""
        prefix = frames.PREFIX.unpack_from
        while end - at >= frames.OVERHEAD:
            kind, of_channel, size = prefix(buffer, at)
            after = at + frames.OVERHEAD + size
            if of_channel != self.number or after > end:
                break
            if buffer[after - 1] != frames.END:
                raise CodecError("a frame doesn't end where it says")
            ids = _U32.unpack_from(buffer, at + 7)[0] if kind == frames.METHOD and size >= 4 else 0
            if ids == _ACK:
                tag, multiple = _TAG_AND_FLAG.unpack_from(buffer, at + 11)
                self._counts.forwarded += self.confirms.confirmed(tag, multiple=bool(multiple))
            elif ids == _NACK:
                tag, multiple = _TAG_AND_FLAG.unpack_from(buffer, at + 11)
                self._refused(tag, multiple=bool(multiple & 1))
            else:
                self._channel.received(kind, bytes(buffer[at + 7 : after - 1]))
            at = after
        self.acknowledge()
        return at

    async def settled(self) -> None:
        """Waits until nothing is in flight."""
        while self.confirms.in_flight:
            self._quiet = asyncio.get_running_loop().create_future()
            await self._quiet

    def acknowledge(self) -> None:
        """Tells upstream what is settled, in one frame for all of it."""
        if self._quiet is not None and not self.confirms.in_flight and not self._quiet.done():
            self._quiet.set_result(None)
        tag = self.confirms.acknowledge()
        if tag is not None and self._ack_mode is not AckMode.NO_ACK:
            self._settle(_ACK_FRAME.pack(frames.METHOD, self.upstream_number, 13, 60, 80, tag, 1, frames.END))

    def _refused(self, number: int, *, multiple: bool) -> None:
        for tag in self.confirms.refused(number, multiple=multiple):
            payload = methods.BASIC_NACK.encode(delivery_tag=tag, requeue=True)
            self._settle(frames.frame(frames.METHOD, self.upstream_number, payload))
