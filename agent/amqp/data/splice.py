"""The data path: deliveries in, publishes out, without making objects of messages.

One pass over what a `recv` brought: for a delivery the prebuilt publish of its routing key goes out, the content
header grows by one prebuilt entry, bodies are copied as they are. What is out of the ordinary (a header that is
there already, a user id, frames too large for the other side) takes a longer way.

A message is published when all of it is here, so that a connection that dies midway leaves nothing behind. Only
what is larger than `WHOLE` goes on as it comes; see `Channel.is_midway` for what happens to that.

What can't be published at all (too large for the downstream, headers that don't fit into one of its frames or that
nobody can read) is not sent, since it would break the link each time it comes: see `Target.unfit`. That the lengths of
the properties add up is checked of every message; what is in its headers table, where a `Scrutiny` is given.
"""

from __future__ import annotations

import struct
from typing import Final, Protocol

from agent.amqp.data.scrutiny import Scrutiny
from agent.amqp.data.target import Counts, Outlet, Target
from agent.amqp.data.unfit import TOO_LARGE, TOO_MANY_HEADERS, UNREADABLE
from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import MAX_BODY, Channel
from agent.amqp.wire.properties import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    HEADERS,
    TAIL_MASK,
    TAILS,
    USER_ID,
    Properties,
    end_of,
)
from agent.amqp.wire.tables import CodecError

__all__ = ["WHOLE", "Counts", "Outlet", "Rewriter", "Source", "Target"]

WHOLE: Final = 1024 * 1024
_DELIVER: Final = 60 << 16 | 60
_PREFIX: Final = frames.PREFIX
_CHANNEL: Final = frames.CHANNEL
_OVERHEAD: Final = frames.OVERHEAD
_U32: Final = struct.Struct(">I")
_TAG_AND_FLAG: Final = struct.Struct(">QB")
_HEADER: Final = struct.Struct(">BHIIQH")  # a header frame up to its property flags
_DELIVERY: Final = struct.Struct(">BHIIB")  # a delivery up to the length of its consumer's tag
_TAG_FLAG_LENGTH: Final = struct.Struct(">QBB")  # the next, up to the length of its exchange's name
# Brokers cut a body into frames as large as was agreed on, but for the last. What is cut smaller than the smallest of
# all limits takes far more work and memory here than it took to send.
_SHORTEST_PART: Final = frames.SMALLEST - frames.OVERHEAD
_SHORTEST: Final = 26  # bytes of a delivery whose names are all empty
_FLAGS: Final = struct.Struct(">H")
_TO_FLAGS: Final = 19  # from a header frame's start
_TO_PROPERTIES: Final = 21
_IDS: Final = frames.BASIC << 16  # of a content header: the class, and a weight that has to be 0
_MOST_JUDGED: Final = 256 * 1024  # of headers with ours among them; longer ones would hold up other links
_MOST_PUBLISHES: Final = 256 * 1024
_OF_AN_ENTRY: Final = 250  # bytes that Python takes for an entry besides what is in it


class Rewriter(Protocol):
    """What a kind of link adds to messages."""

    @property
    def mark(self) -> bytes:
        """The header's name as it stands in a table; where it is found, `rewrite` decides."""

    @property
    def trusts_user_id(self) -> bool:
        """Whether the `user_id` goes along; the downstream refuses one that isn't ours."""

    def entry(self, *, redelivered: bool) -> bytes:
        """The header as bytes (name, tag, value), for a message that has none of it yet."""

    def rewrite(self, headers: bytes, *, redelivered: bool) -> bytes | str:
        """The headers (a table with its length) to publish with, or why the message is dropped."""


class Source:
    """The upstream channel's frames, and what becomes of them downstream."""

    def __init__(
        self,
        channel: Channel,
        target: Target,
        rewriter: Rewriter,
        *,
        exchange: str,
        mandatory: bool,
        scrutiny: Scrutiny | None = None,
    ) -> None:
        """With `scrutiny`, messages are looked at one by one, and those are unfit that it objects to."""
        target.fed_by(channel)
        entries = (rewriter.entry(redelivered=False), rewriter.entry(redelivered=True))
        self._channel = channel
        self._number = channel.number
        self._target = target
        self._target_number = target.number
        self._rewriter = rewriter
        self._entries = entries
        self._tables = tuple(_U32.pack(len(entry)) + entry for entry in entries)
        self._mark = rewriter.mark
        self._unusual = 0 if rewriter.trusts_user_id else USER_ID
        payload = methods.BASIC_PUBLISH.encode(exchange=exchange, mandatory=mandatory)
        self._around_key = payload[:-2], payload[-1:]  # between them is the length of an empty key
        self._publishes: dict[bytes, bytes] = {}
        self._publishes_bytes = 0
        self._scrutiny = scrutiny
        self._room = (target.outlet.frame_max or frames.LARGEST) - frames.OVERHEAD
        self._largest = MAX_BODY if target.largest is None else target.largest
        self._at_once = min(self._room, self._largest)
        # The message that is being read
        self._tag = 0
        self._redelivered = 0
        self._publish = b""
        self._awaits_header = False
        self._size = 0
        self._missing = 0
        self._skips = False
        self._begun = 0  # where it begins in `_out`
        self._is_midway = False
        # What one read brought
        self._out: list[bytes | bytearray | memoryview] = []
        self._tags: list[int] = []
        self._bytes = 0
        self._redeliveries = 0
        self._has_dropped = False

    @property
    def kept(self) -> int:
        """About how many bytes of memory the publishes take that are kept."""
        return self._publishes_bytes

    @property
    def last_tag(self) -> int:
        """The last delivery that has come."""
        return self._tag

    def take(self, buffer: bytearray, at: int, end: int) -> int:
        """Consumes whole frames of this channel from `at` on; answers where it stopped."""
        prefix, number, overhead = _PREFIX.unpack_from, self._number, _OVERHEAD
        # Publishing on a closed channel would cost the whole connection; upstream keeps what is not acknowledged.
        is_open = self._target.is_open
        while end - at >= overhead:
            kind, of_channel, size = prefix(buffer, at)
            after = at + overhead + size
            if of_channel != number or after > end:
                break
            if buffer[after - 1] != frames.END:
                raise CodecError("a frame doesn't end where it says")
            if kind == frames.METHOD:
                if size < 4 or _U32.unpack_from(buffer, at + 7)[0] != _DELIVER:
                    self._channel.received(kind, bytes(buffer[at + 7 : after - 1]))
                elif is_open:
                    passed = at if self._scrutiny else self._quickly(buffer, at, end)
                    if passed > at:
                        at = passed
                        continue
                    self._deliver(buffer, at, after)
            elif is_open:
                self._content(kind, buffer, at, after)
            at = after
        if is_open:
            self._flush()
        return at

    def _quickly(self, buffer: bytearray, at: int, end: int) -> int:  # noqa: C901, PLR0912, PLR0915 - calls cost, see below
        """Passes on what is all here, in one body frame each, and ordinary; answers where the first other one begins.

        This is where the time goes; with a call for each part and its attributes it takes a sixth more.
        """
        if self._awaits_header or self._missing:
            return at
        number, target_number, publishes = self._number, self._target_number, self._publishes
        tails, tail_mask = TAILS, TAIL_MASK
        mark, unusual, room, at_once = self._mark, self._unusual, self._room, self._at_once
        view = memoryview(buffer)  # written out before the buffer is read into again
        out, tags, last, size_of_all, redeliveries = self._out, self._tags, self._tag, 0, 0
        try:
            while at + _SHORTEST <= end:
                kind, channel, size, method, length = _DELIVERY.unpack_from(buffer, at)
                header = at + _OVERHEAD + size
                if method != _DELIVER or kind != frames.METHOD or channel != number or header + _TO_PROPERTIES > end:
                    break
                where = at + 12 + length
                tag, redelivered, length = _TAG_FLAG_LENGTH.unpack_from(buffer, where)
                where += 10 + length
                key = bytes(buffer[where : header - 1])
                if tag != last + 1 or buffer[where] != len(key) - 1 or buffer[header - 1] != frames.END:
                    break
                kind, channel, size, ids, body_size, flags = _HEADER.unpack_from(buffer, header)
                body = header + _OVERHEAD + size
                if (
                    body + _OVERHEAD > end
                    or kind != frames.HEADER
                    or channel != number
                    or buffer[body - 1] != frames.END
                ):
                    break
                kind, channel, length = _PREFIX.unpack_from(buffer, body)
                after: int = body + _OVERHEAD + length
                if (
                    after > end
                    or kind != frames.BODY
                    or channel != number
                    or ids != _IDS
                    or length != body_size
                    or flags & unusual
                    or not 0 < body_size <= at_once
                    or buffer[after - 1] != frames.END
                ):
                    break
                where = header + _TO_PROPERTIES
                if flags & CONTENT_TYPE:
                    where += 1 + buffer[where]
                if flags & CONTENT_ENCODING:
                    where += 1 + buffer[where]
                redelivered &= 1
                if flags & HEADERS:
                    entry = self._entries[redelivered]
                    (length,) = _U32.unpack_from(buffer, where)
                    where += 4
                    past = where + length
                    if past >= body or buffer.find(mark, where, past) >= 0:
                        break
                else:
                    entry = self._tables[redelivered]
                    past = where
                size += len(entry)
                skips, fixed = tails[flags >> 2 & tail_mask]
                for skip in skips:
                    past += skip
                    past += 1 + buffer[past]
                if past + fixed != body - 1 or size > room:
                    break
                if flags & HEADERS:
                    _U32.pack_into(buffer, where - 4, length + len(entry))
                else:
                    _FLAGS.pack_into(buffer, header + _TO_FLAGS, flags | HEADERS)
                # In place: these bytes are consumed, and one slice is cheaper than three.
                _PREFIX.pack_into(buffer, header, frames.HEADER, target_number, size)
                _CHANNEL.pack_into(buffer, body + 1, target_number)
                out += (publishes.get(key) or self._publish_for(key), view[header:where], entry, view[where:after])
                tags.append(tag)
                last = tag
                size_of_all += body_size
                redeliveries += redelivered
                at = after
        except (IndexError, struct.error):
            pass  # properties that lead out of the buffer; nothing was changed for that message yet
        self._tag = last
        self._bytes += size_of_all
        self._redeliveries += redeliveries
        return at

    def _deliver(self, buffer: bytearray, at: int, after: int) -> None:
        if self._awaits_header or self._missing:
            raise CodecError("a delivery before the end of another")
        where = at + 12 + buffer[at + 11]
        tag, flags = _TAG_AND_FLAG.unpack_from(buffer, where)
        where += 9
        where += 1 + buffer[where]
        if where + buffer[where] != after - 2:
            raise CodecError("a delivery that makes no sense")
        if tag != self._tag + 1:  # what is acknowledged is counted from one tag to the next
            raise CodecError(f"delivery tag {tag} came where {self._tag + 1} was due")
        key = bytes(buffer[where : after - 1])
        self._tag, self._redelivered = tag, flags & 1
        self._publish = self._publishes.get(key) or self._publish_for(key)
        self._awaits_header = True

    def _publish_for(self, key: bytes) -> bytes:
        """The whole publish frame for a routing key (with its length in front); kept, since keys repeat."""
        head, flags = self._around_key
        made = frames.frame(frames.METHOD, self._target_number, head + key + flags)
        size = len(key) + len(made) + _OF_AN_ENTRY
        if self._publishes_bytes + size > _MOST_PUBLISHES:
            self._publishes.clear()
            self._publishes_bytes = 0
        self._publishes[key] = made
        self._publishes_bytes += size
        return made

    def _splice(self, buffer: bytearray, at: int, after: int, *, flags: int) -> bool:
        """Writes the publish and the header with the entry put in; not if it has to be judged."""
        where = at + _TO_PROPERTIES
        try:
            if flags & CONTENT_TYPE:
                where += 1 + buffer[where]
            if flags & CONTENT_ENCODING:
                where += 1 + buffer[where]
            length = 4 + _U32.unpack_from(buffer, where)[0] if flags & HEADERS else 0
            if end_of(buffer, where + length, flags) != after - 1:
                return False
        except (IndexError, struct.error):
            return False
        entry = (self._entries if flags & HEADERS else self._tables)[self._redelivered]
        size = after - at - _OVERHEAD + len(entry)
        if size > self._room or buffer.find(self._mark, where, where + length) >= 0:
            return False
        if flags & HEADERS:
            _U32.pack_into(buffer, where, length - 4 + len(entry))
            where += 4
        else:
            _FLAGS.pack_into(buffer, at + _TO_FLAGS, flags | HEADERS)
        # In place: these bytes are consumed, and one slice is cheaper than three.
        _PREFIX.pack_into(buffer, at, frames.HEADER, self._target_number, size)
        self._out += (self._publish, buffer[at:where], entry, buffer[where:after])
        return True

    def _content(self, kind: int, buffer: bytearray, at: int, after: int) -> None:
        if kind == frames.HEADER and self._awaits_header:
            self._header(buffer, at, after)
        elif kind == frames.BODY and self._missing:
            self._body(buffer, at, after)
        else:
            raise CodecError("content that nothing announced")
        if not self._missing:
            self._end()

    def _header(self, buffer: bytearray, at: int, after: int) -> None:
        if after - at < _TO_PROPERTIES + 1:
            raise CodecError("a content header is cut off")
        *_, ids, self._size, flags = _HEADER.unpack_from(buffer, at)
        self._missing = self._size
        self._awaits_header = False
        self._begun = len(self._out)
        if self._size > self._largest:
            self._refuse(TOO_LARGE, self._size)
        elif ids != _IDS:
            self._refuse(UNREADABLE)
        elif self._scrutiny is not None and (objection := self._object(self._scrutiny, buffer, at, after)):
            self._refuse(objection)
        elif flags & self._unusual or not self._splice(buffer, at, after, flags=flags):
            self._rewrite(bytes(buffer[at + 7 : after - 1]))

    def _object(self, scrutiny: Scrutiny, buffer: bytearray, at: int, after: int) -> str:
        properties = bytes(buffer[at + _TO_FLAGS : after - 1])
        return scrutiny.objection(self._tag, self._publish, properties, self._size)

    def _rewrite(self, payload: bytes) -> None:
        """The long way: whatever may be in a header."""
        if len(payload) > _MOST_JUDGED and self._mark in payload:
            self._refuse(TOO_MANY_HEADERS, len(payload))
            return
        try:
            found = self._properties(Properties.read(payload[12:]))
        except CodecError:
            self._refuse(UNREADABLE)
            return
        if isinstance(found, str):
            self._skips = self._has_dropped = True
            self._target.dropped(self._tag, found)
            return
        payload = payload[:12] + found.write()
        if len(payload) > self._room:
            self._refuse(TOO_MANY_HEADERS, len(payload))
        else:
            self._out += (self._publish, frames.frame(frames.HEADER, self._target_number, payload))

    def _properties(self, properties: Properties) -> Properties | str:
        if not self._rewriter.trusts_user_id:
            properties = properties.without_user_id()
        raw = properties.raw_headers
        if self._mark not in raw:
            return properties.with_first_header(self._entries[self._redelivered])
        found = self._rewriter.rewrite(raw, redelivered=bool(self._redelivered))
        return found if isinstance(found, str) else properties.with_raw_headers(found)

    def _refuse(self, reason: str, size: int = 0) -> None:
        self._skips = True
        self._target.unfit(self._tag, reason, size)

    def _body(self, buffer: bytearray, at: int, after: int) -> None:
        size = after - at - _OVERHEAD
        self._missing -= size
        if self._missing < 0:
            raise CodecError("a body is longer than its header says")
        if size < _SHORTEST_PART and self._missing:
            raise CodecError(f"a body frame of {size} bytes that isn't its message's last")
        if self._skips:
            return
        number, room = self._target_number, self._room
        if size <= room:
            _CHANNEL.pack_into(buffer, at + 1, number)
            self._out.append(buffer[at:after])
        else:
            body = bytes(buffer[at + 7 : after - 1])
            self._out += [frames.frame(frames.BODY, number, body[cut : cut + room]) for cut in range(0, size, room)]

    def _end(self) -> None:
        if not self._skips:
            self._tags.append(self._tag)
            self._bytes += self._size
            self._redeliveries += self._redelivered
        self._skips = False

    def _flush(self) -> None:
        """Writes what is whole, and of a message larger than `WHOLE` what is here."""
        out, self._out = self._out, []
        midway = bool(self._missing) and not self._skips
        if midway and self._size <= WHOLE:
            self._out = out[self._begun :]
            del out[self._begun :]
            self._begun, midway = 0, False
        if midway is not self._is_midway:
            self._is_midway = midway
            self._target.streams(midway=midway)
        if out:
            self._target.outlet.write_soon(b"".join(out))
        if self._tags:
            self._target.published(self._tags, self._bytes, redelivered=self._redeliveries)
            self._tags, self._bytes, self._redeliveries = [], 0, 0
        if self._has_dropped:
            self._has_dropped = False
            self._target.acknowledge()
