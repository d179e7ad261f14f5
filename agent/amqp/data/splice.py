"""The data path: deliveries in, publishes out, without making objects of messages.

One pass over what a `recv` brought: for a delivery the publish that is prepared for its exchange and routing key goes
out, the content header grows by prepared entries, bodies are copied as they are. What is out of the ordinary (a header
that is there already, a user id, properties to replace, frames too large for the other side) takes a longer way. A
message that loses headers by the rules of an operator takes one in between.

A message is published when all of it is here, so that a connection that dies midway leaves nothing behind. Only
what is larger than `WHOLE` goes on as it comes; see `Channel.is_midway` for what happens to that.

What can't be published at all (too large for the downstream, headers that don't fit into one of its frames or that
can't be read) is not sent, since it would break the link each time it comes: see `PublishTracker.refuse`. That the
lengths of the properties add up is checked of every message; what is in its headers table, where a `PoisonCheck` is
given.

Why: docs/decisions/0006-data-path-not-compiled.md, docs/decisions/0011-limit-counts-delivered.md
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from agent.amqp.data.held import Received, Ways
from agent.amqp.data.poison_check import PoisonCheck
from agent.amqp.data.prepared import PUBLISH, Prepared
from agent.amqp.data.probe import Probes, token_of
from agent.amqp.data.publish_tracker import MOST_UNSETTLED, Counts, PublishTracker
from agent.amqp.data.quarantined import Capture
from agent.amqp.data.refused import RETURNS_MARK, comes_too_often
from agent.amqp.data.rewriting import Chooser, Delivery, Destination, HeaderRules, Rewriter, read_address, rewritten
from agent.amqp.wire import frames
from agent.amqp.wire.channel import MAX_BODY, Channel
from agent.amqp.wire.frames import U32
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
from agent.core.rules.quarantine import QuarantineReason

__all__ = ["WHOLE", "Counts", "DeliveryForwarder", "Destination", "PublishTracker", "Rewriter"]

WHOLE: Final = 1024 * 1024
_DELIVER: Final = 60 << 16 | 60
_PREFIX: Final = frames.PREFIX
_CHANNEL: Final = frames.CHANNEL
_OVERHEAD: Final = frames.OVERHEAD
_TAG_AND_FLAG: Final = struct.Struct(">QB")
_HEADER: Final = struct.Struct(">BHIIQH")  # a header frame up to its property flags
_DELIVERY: Final = struct.Struct(">BHIIB")  # a delivery up to the length of its consumer's tag
# Brokers cut a body into frames as large as was agreed on, but for the last. What is cut smaller than the smallest of
# all limits takes far more work and memory here than it took to send.
_SHORTEST_PART: Final = frames.SMALLEST - frames.OVERHEAD
_SHORTEST: Final = 26  # bytes of a delivery whose names are all empty
_SHORTEST_MESSAGE: Final = _SHORTEST + _OVERHEAD + 14 + _OVERHEAD + 1  # that is published quickly
_UNLIMITED: Final = 1 << 64  # more than there are tags
_FLAGS: Final = struct.Struct(">H")
_TO_FLAGS: Final = 19  # from a header frame's start
_TO_PROPERTIES: Final = 21
_IDS: Final = frames.BASIC << 16  # of a content header: the class, and a weight that has to be 0
_MOST_JUDGED: Final = 256 * 1024  # of headers with ours among them; longer ones would hold up other links


class DeliveryForwarder:
    """Forwards the deliveries of the upstream channel: turns its frames into publishes downstream."""

    __slots__ = (  # a dict of so many would take 1.5 KB a link
        "_added", "_address", "_around", "_at_once", "_awaits_header", "_begun", "_bytes", "_came_again", "_capture",
        "_changes", "_channel", "_chooser", "_counted", "_has_dropped", "_is_careful", "_is_midway", "_keeps_returned",
        "_largest", "_last_allowed", "_mark", "_may_be_probe", "_missing", "_number", "_other_marks", "_out",
        "_poison_check", "_prepared", "_prepared_for", "_redelivered", "_remaining", "_rewriter", "_rewritten", "_room",
        "_size", "_skips", "_stays", "_tag", "_tags", "_target", "_target_number", "_uncounted", "_unusual",
        "_was_added", "on_exhausted", "on_published", "probes",
    )  # fmt: skip

    def __init__(
        self,
        channel: Channel,
        target: PublishTracker,
        rewriter: Rewriter,
        destination: Destination,
        *,
        poison_check: PoisonCheck | None = None,
        limit: int | None = None,
        capture: Capture | None = None,
        keeps_returned: bool = False,
        chooser: Chooser | None = None,
    ) -> None:
        """With a `chooser`, each message goes where that says, and `destination` keeps the addresses of deliveries.

        With `poison_check`, messages are checked one by one, and refused if it objects. With `keeps_returned`, those
        are refused, too, that the source would drop if they came back some more times.

        `limit` is the number of messages to publish; what comes beyond is neither published nor settled, unless more
        are allowed.
        """
        target.fed_by(channel)
        self._channel = channel
        self._number = channel.number
        self._target = target
        self._target_number = target.number
        self._rewriter = rewriter
        self._remaining = rewriter.remaining if isinstance(rewriter, HeaderRules) else None
        self._prepared = Prepared(rewriter, destination, number=target.number)
        self._mark, *others = rewriter.marks or (b"",)
        self._other_marks = (*others, RETURNS_MARK) if keeps_returned else tuple(others)
        self._keeps_returned = keeps_returned
        self._changes = rewriter.changes
        self._unusual = 0 if self._changes.users is None else USER_ID
        self._is_careful = (  # messages are looked at one by one
            poison_check is not None or chooser is not None or bool(self._changes.values)
        )
        self._chooser = chooser
        self._poison_check = poison_check
        self.probes: Probes | None = None
        self._capture = capture
        self._room = (target.outlet.frame_max or frames.LARGEST) - frames.OVERHEAD
        self._largest = MAX_BODY if target.largest is None else target.largest
        self.on_exhausted: Callable[[], None] | None = None  # called when the last that may be taken is here
        self.on_published: Callable[[int, int], None] | None = None  # with how many of what size, once or twice a read
        self._last_allowed = _UNLIMITED if limit is None else limit  # by its delivery tag
        self._at_once = min(self._room, self._largest)
        # The message that is being read
        self._tag = 0
        self._redelivered = 0
        self._address = b""
        self._may_be_probe = False
        self._around: tuple[bytes, ...] = ()
        self._was_added: bytes | Received = b""
        self._awaits_header = False
        self._size = 0
        self._missing = 0
        self._skips = False
        self._stays = ""  # why it stays at its source, where the chooser says so
        self._begun = 0  # where it begins in `_out`
        self._is_midway = False
        self._counted = 0  # the last delivery that is counted as taken
        self._uncounted = 0  # since then: probes, and what came beyond the limit
        # What one read brought
        self._out: list[bytes | bytearray | memoryview] = []
        self._tags: list[int] = []
        self._prepared_for: list[tuple[bytes, ...]] = []
        self._added: list[bytes | Received] = []
        self._bytes = 0
        self._came_again: list[int] = []  # of the tags
        self._rewritten = 0  # bytes of properties as they came, where others were written
        self._has_dropped = False

    @property
    def kept(self) -> int:
        """About how many bytes of memory the prepared publishes take."""
        return self._prepared.kept

    @property
    def is_receiving(self) -> bool:
        """True if the last delivery isn't complete."""
        return self._awaits_header or self._missing > 0

    @property
    def is_exhausted(self) -> bool:
        """True if as many deliveries have come as may be taken."""
        return self._tag >= self._last_allowed

    def forget_largest(self) -> None:
        """Forget the largest body that the destination takes: it may take larger ones by now, and the next one shows
        it."""
        self._target.largest, self._largest = None, MAX_BODY
        self._at_once = min(self._room, self._largest)

    def keep_returned(self) -> None:
        """From now on, refuse messages that the source would drop if they came back some more times."""
        if not self._keeps_returned:
            self._keeps_returned = True
            self._other_marks = (*self._other_marks, RETURNS_MARK)

    def take_no_more(self) -> None:
        """Publish nothing that follows the delivery which came last, and don't settle it."""
        self._last_allowed = min(self._last_allowed, self._tag)

    def allow(self, count: int) -> None:
        """Allow `count` more deliveries; what came beyond the limit goes back now, and may be among them."""
        tag, last = self._tag, self._last_allowed
        self._last_allowed = max(tag, last) + count
        if tag > last:
            self._target.surplus(range(last + 1, tag + 1))

    def take(self, buffer: bytearray, at: int, end: int) -> int:
        """Consume whole frames of this channel from `at` on; return where it stopped."""
        prefix, number, overhead = _PREFIX.unpack_from, self._number, _OVERHEAD
        # Publishing on a closed channel would cost the whole connection; upstream keeps what is not acknowledged.
        is_open = self._target.is_open
        self._prepared.renew()
        while end - at >= overhead:
            kind, of_channel, size = prefix(buffer, at)
            after = at + overhead + size
            if of_channel != number or after > end:
                break
            if buffer[after - 1] != frames.END:
                raise CodecError("a frame doesn't end where it says")
            if kind == frames.METHOD:
                if size < 4 or U32.unpack_from(buffer, at + 7)[0] != _DELIVER:
                    self._channel.received(kind, bytes(buffer[at + 7 : after - 1]))
                elif is_open:
                    is_near_last = self._last_allowed - self._tag <= (end - at) // _SHORTEST_MESSAGE
                    passed = at if self._is_careful or is_near_last else self._quickly(buffer, at, end)
                    if passed > at:
                        at = passed
                        continue
                    self._deliver(buffer, at, after)
            elif is_open and not self._content(kind, buffer, at, after):
                break
            at = after
        if is_open:
            self._flush()
        return at

    def _quickly(self, buffer: bytearray, at: int, end: int) -> int:  # noqa: C901, PLR0912, PLR0915 - calls cost, see below
        """Forward messages that are complete, in one body frame each, and ordinary; return where the first other one
        begins.

        This is where the time goes; with a call for each part and its attributes it takes a sixth more.
        """
        if self._awaits_header or self._missing:
            return at
        number, target_number = self._number, self._target_number
        known, prepare = self._prepared.known, self._prepared.add
        tails, tail_mask = TAILS, TAIL_MASK
        mark, others, unusual, room, at_once = self._mark, self._other_marks, self._unusual, self._room, self._at_once
        remaining = self._remaining
        view = memoryview(buffer)  # written out before the buffer is read into again
        out, prepared_for, added, came_again = self._out, self._prepared_for, self._added, self._came_again
        last, size_of_all = self._tag, 0
        try:
            while at + _SHORTEST <= end:
                kind, channel, size, method, length = _DELIVERY.unpack_from(buffer, at)
                header = at + _OVERHEAD + size
                if method != _DELIVER or kind != frames.METHOD or channel != number or header + _TO_PROPERTIES > end:
                    break
                where = at + 12 + length
                tag, redelivered = _TAG_AND_FLAG.unpack_from(buffer, where)
                address = bytes(buffer[where + 9 : header - 1])
                around = known.get(address) or prepare(address)
                if tag != last + 1 or not around or buffer[header - 1] != frames.END:
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
                    entry = around[redelivered]
                    (length,) = U32.unpack_from(buffer, where)
                    where += 4
                    past = where + length
                    if past >= body:
                        break
                    if (mark and buffer.find(mark, where, past) >= 0) or (
                        others and _has_any(others, buffer, where, past)
                    ):
                        if remaining is None or not self._splice_remaining(
                            buffer, header, (where, past), around, entry
                        ):
                            break
                        _CHANNEL.pack_into(buffer, body + 1, target_number)
                        out.append(view[body:after])
                        last = tag
                        size_of_all += body_size
                        if redelivered:
                            came_again.append(tag)
                        at = after
                        continue
                else:
                    entry = around[2 + redelivered]
                    past = where
                size += len(entry)
                skips, fixed = tails[flags >> 2 & tail_mask]
                for skip in skips:
                    past += skip
                    past += 1 + buffer[past]
                if past + fixed != body - 1 or size > room:
                    break
                if flags & HEADERS:
                    U32.pack_into(buffer, where - 4, length + len(entry))
                elif entry:
                    _FLAGS.pack_into(buffer, header + _TO_FLAGS, flags | HEADERS)
                # In place: these bytes are consumed, and one slice is cheaper than three.
                _PREFIX.pack_into(buffer, header, frames.HEADER, target_number, size)
                _CHANNEL.pack_into(buffer, body + 1, target_number)
                out += (around[PUBLISH], view[header:where], entry, view[where:after])
                prepared_for.append(around)
                added.append(entry)
                last = tag
                size_of_all += body_size
                if redelivered:
                    came_again.append(tag)
                at = after
        except (IndexError, struct.error):
            pass  # properties that lead out of the buffer; nothing was changed for that message yet
        self._tags += range(self._tag + 1, last + 1)
        self._tag = last
        self._bytes += size_of_all
        return at

    def _splice_remaining(
        self, buffer: bytearray, at: int, table: tuple[int, int], around: tuple[bytes, ...], entry: bytes
    ) -> bool:
        """Write the publish and the header with those of its headers that rules let remain, and the entry before them;
        return False if the message has to be rewritten. `at` is where the header begins, `table` where its table begins
        and ends, without its length."""
        where, past = table
        size = _PREFIX.unpack_from(buffer, at)[2]
        end = at + _OVERHEAD + size - 1
        if past - where > _MOST_JUDGED or self._keeps_returned or self._remaining is None:
            return False
        try:
            remaining = self._remaining(bytes(buffer[where - 4 : past]))
        except CodecError:
            return False
        if remaining is None or end_of(buffer, past, _FLAGS.unpack_from(buffer, at + _TO_FLAGS)[0]) != end:
            return False
        length = len(remaining) - 4 + len(entry)
        size += length - (past - where)
        if size > self._room:
            return False
        received = Received(bytes(buffer[at + _TO_FLAGS : end]))
        U32.pack_into(buffer, where - 4, length)
        _PREFIX.pack_into(buffer, at, frames.HEADER, self._target_number, size)
        self._out += (around[PUBLISH], buffer[at:where], entry, remaining[4:], buffer[past : end + 1])
        self._prepared_for.append(around)
        self._added.append(received)
        self._rewritten += len(received.properties)
        return True

    def _deliver(self, buffer: bytearray, at: int, after: int) -> None:
        if self._awaits_header or self._missing:
            raise CodecError("a delivery before the end of another")
        where = at + 12 + buffer[at + 11]
        tag, flags = _TAG_AND_FLAG.unpack_from(buffer, where)
        address = bytes(buffer[where + 9 : after - 1])
        around = self._prepared.known.get(address) or self._prepared.add(address)
        self._may_be_probe = not around
        around = around or self._prepared.add_unusual(address)
        if not around:
            raise CodecError("a delivery that makes no sense")
        if tag != self._tag + 1:  # what is acknowledged is counted from one tag to the next
            raise CodecError(f"delivery tag {tag} came where {self._tag + 1} was due")
        self._tag, self._redelivered = tag, flags & 1
        self._address, self._around = address, around
        self._skips = tag > self._last_allowed
        if tag - self._last_allowed > MOST_UNSETTLED:
            raise CodecError("more deliveries than the prefetch allows")
        self._awaits_header = True

    def _splice(self, buffer: bytearray, at: int, after: int, *, flags: int) -> bool:
        """Write the publish and the header with the entry put in; return False if the message has to be rewritten."""
        where = at + _TO_PROPERTIES
        try:
            if flags & CONTENT_TYPE:
                where += 1 + buffer[where]
            if flags & CONTENT_ENCODING:
                where += 1 + buffer[where]
            length = 4 + U32.unpack_from(buffer, where)[0] if flags & HEADERS else 0
            if end_of(buffer, where + length, flags) != after - 1:
                return False
        except (IndexError, struct.error):
            return False
        entry = self._around[self._redelivered + (0 if flags & HEADERS else 2)]
        size = after - at - _OVERHEAD + len(entry)
        if size > self._room or (length and self._is_marked(buffer, where, where + length)):
            return False
        if flags & HEADERS:
            U32.pack_into(buffer, where, length - 4 + len(entry))
            where += 4
        elif entry:
            _FLAGS.pack_into(buffer, at + _TO_FLAGS, flags | HEADERS)
        # In place: these bytes are consumed, and one slice is cheaper than three.
        _PREFIX.pack_into(buffer, at, frames.HEADER, self._target_number, size)
        self._out += (self._around[PUBLISH], buffer[at:where], entry, buffer[where:after])
        self._was_added = entry
        return True

    def _content(self, kind: int, buffer: bytearray, at: int, after: int) -> bool:
        """Take a content frame; return False if the chooser doesn't know yet where the message goes."""
        if kind == frames.HEADER and self._awaits_header:
            if self._chooser is not None and not self._is_decided(self._chooser, buffer, at, after):
                return False
            self._header(buffer, at, after)
        elif kind == frames.BODY and self._missing:
            self._body(buffer, at, after)
        else:
            raise CodecError("content that nothing announced")
        if not self._missing:
            self._end()
        return True

    def _is_decided(self, chooser: Chooser, buffer: bytearray, at: int, after: int) -> bool:
        if self._skips or after - at < _TO_PROPERTIES + 1:
            return True
        *_, size, _ = _HEADER.unpack_from(buffer, at)
        found = chooser.choose(bytes(buffer[at + _TO_FLAGS : after - 1]), self._delivery, size)
        self._stays = found if isinstance(found, str) else ""
        if isinstance(found, bytes):
            prepared = self._prepared
            self._around = prepared.known.get(found) or prepared.add(found) or prepared.add_unusual(found)
        return found is not None

    def _header(self, buffer: bytearray, at: int, after: int) -> None:
        if after - at < _TO_PROPERTIES + 1:
            raise CodecError("a content header is cut off")
        *_, ids, self._size, flags = _HEADER.unpack_from(buffer, at)
        self._missing = self._size
        self._awaits_header = False
        self._begun = len(self._out)
        if self._skips:
            self._uncounted += 1
            return
        if self._may_be_probe and (token := token_of(bytes(buffer[at + _TO_FLAGS : after - 1]))) is not None:
            self._probe(token, buffer, at, after)
        elif self._stays:
            self._skips = True
            self._target.refuse(self._tag, self._stays, self._size)
        elif self._size > self._largest:
            self._refuse(QuarantineReason.TOO_LARGE, bytes(buffer[at + _TO_FLAGS : after - 1]), size=self._size)
        elif ids != _IDS:
            self._refuse(QuarantineReason.UNREADABLE, bytes(buffer[at + _TO_FLAGS : after - 1]))
        elif self._poison_check is not None and (objection := self._object(self._poison_check, buffer, at, after)):
            self._refuse(objection, bytes(buffer[at + _TO_FLAGS : after - 1]))
        elif flags & self._unusual or self._changes.values or not self._splice(buffer, at, after, flags=flags):
            self._rewrite(bytes(buffer[at + 7 : after - 1]))

    def _probe(self, token: bytes, buffer: bytearray, at: int, after: int) -> None:
        """Forward a probe as it is to where it is awaited; drop one of another agent, or of an earlier session."""
        self._uncounted += 1
        publish = self.probes.publish(token, self._target_number) if self.probes and not self._size else None
        if publish is None or after - at - _OVERHEAD > self._room:
            self._skips = self._has_dropped = True
            self._target.probe_dropped(self._tag)
            return
        _PREFIX.pack_into(buffer, at, frames.HEADER, self._target_number, after - at - _OVERHEAD)
        self._out += (publish, buffer[at:after])
        self._was_added = b""
        self._target.passes_probe(self._tag)

    def _object(self, poison_check: PoisonCheck, buffer: bytearray, at: int, after: int) -> str:
        properties = bytes(buffer[at + _TO_FLAGS : after - 1])
        return poison_check.objection(self._tag, self._around[PUBLISH], properties, self._size)

    def _rewrite(self, payload: bytes) -> None:
        """Forward, drop or refuse a message by decoding its properties: the slow way, for anything that a header may
        hold."""
        if len(payload) > _MOST_JUDGED and self._is_marked(payload, 0, len(payload)):
            self._refuse(QuarantineReason.HEADERS_TOO_LARGE, payload[12:], size=len(payload))
            return
        received = payload[12:]
        try:
            if self._keeps_returned and comes_too_often(received):
                self._refuse(QuarantineReason.RETURNED, received)
                return
            found = rewritten(self._rewriter, Properties.read(received), self._delivery)
        except CodecError:
            self._refuse(QuarantineReason.UNREADABLE, received)
            return
        if isinstance(found, str):
            self._skips = self._has_dropped = True
            self._target.dropped(self._tag, found)
            return
        payload = payload[:12] + found.write()
        if len(payload) > self._room:
            self._refuse(QuarantineReason.HEADERS_TOO_LARGE, received, size=len(payload))
        else:
            self._out += (self._around[PUBLISH], frames.frame(frames.HEADER, self._target_number, payload))
            self._was_added = Received(received)

    def _is_marked(self, data: bytes | bytearray, at: int, end: int) -> bool:
        """True if one of the rewriter's headers may be there."""
        return (bool(self._mark) and data.find(self._mark, at, end) >= 0) or _has_any(self._other_marks, data, at, end)

    @property
    def _delivery(self) -> Delivery:
        return read_address(self._address, redelivered=bool(self._redelivered))

    def _refuse(self, reason: str, properties: bytes, *, size: int = 0) -> None:
        """Collect the message for the quarantine, or hold it to return it later. `size` is that of what is too large, 0
        if nothing is."""
        self._skips = True
        # Of a destination that closes over every message, none is to blame.
        capture = None if reason == QuarantineReason.CLOSES and not self._target.has_confirmed else self._capture
        if capture is None or not capture.begin(
            self._tag, reason, self._delivery, properties=properties, size=self._size, excess=size
        ):
            self._target.refuse(self._tag, reason, size)

    def _body(self, buffer: bytearray, at: int, after: int) -> None:
        size = after - at - _OVERHEAD
        self._missing -= size
        if self._missing < 0:
            raise CodecError("a body is longer than its header says")
        if size < _SHORTEST_PART and self._missing:
            raise CodecError(f"a body frame of {size} bytes that isn't its message's last")
        if self._skips:
            if self._capture is not None and self._capture.is_collecting:
                self._capture.add(bytes(buffer[at + 7 : after - 1]))
            return
        number, room = self._target_number, self._room
        if size <= room:
            _CHANNEL.pack_into(buffer, at + 1, number)
            self._out.append(buffer[at:after])
        else:
            body = bytes(buffer[at + 7 : after - 1])
            self._out += [frames.frame(frames.BODY, number, body[cut : cut + room]) for cut in range(0, size, room)]

    def _end(self) -> None:
        if self._capture is not None and self._capture.is_collecting:
            self._capture.end()
        if not self._skips:
            self._tags.append(self._tag)
            self._prepared_for.append(self._around)
            self._added.append(self._was_added)
            self._bytes += self._size
            if self._redelivered:
                self._came_again.append(self._tag)
            if isinstance(self._was_added, Received):
                self._rewritten += len(self._was_added.properties)
        self._skips = False
        if self._tag == self._last_allowed and self.on_exhausted is not None:
            self.on_exhausted()

    def _flush(self) -> None:
        """Write messages that are complete, and of a message larger than `WHOLE` what is here."""
        out, self._out = self._out, []
        midway = bool(self._missing) and not self._skips
        if midway and self._size <= WHOLE:
            self._out = out[self._begun :]
            del out[self._begun :]
            self._begun, midway = 0, False
        if midway and self._tags:  # what is whole stays apart from the beginning of the next
            self._target.write(b"".join(out[: self._begun]))
            del out[: self._begun]
            self._publish()
        if midway is not self._is_midway:
            self._is_midway = midway
            self._target.streams(midway=midway)
        if out:
            self._target.write(b"".join(out))
        if self._tags:
            self._publish()
        if self._tag != self._counted:
            self._count()
        if self._has_dropped:
            self._has_dropped = False
            self._target.acknowledge()

    def _count(self) -> None:
        """Count deliveries by their tags, once a read; one whose outcome isn't known yet is counted with the next
        read."""
        is_collecting = self._capture is not None and self._capture.is_collecting
        undecided = self._awaits_header or (self._missing > 0 and (not self._skips or is_collecting))
        decided = self._tag - undecided
        self._target.took(decided - self._counted - self._uncounted)
        self._counted, self._uncounted = decided, 0

    def _publish(self) -> None:
        """Report everything written since the last call as published: all of it is complete."""
        if self._prepared.fresh:
            self._rewritten += self._prepared.fresh
            self._prepared.fresh = 0
        ways = Ways(self._prepared_for, self._added)
        self._target.published(
            self._tags, self._bytes, came_again=self._came_again, ways=ways, rewritten=self._rewritten
        )
        if self.on_published is not None:
            self.on_published(len(self._tags), self._bytes)
        self._tags, self._prepared_for, self._added, self._came_again = [], [], [], []
        self._bytes, self._rewritten = 0, 0


def _has_any(marks: tuple[bytes, ...], data: bytes | bytearray, at: int, end: int) -> bool:
    for mark in marks:  # noqa: SIM110 - a generator costs each message as much as a search
        if data.find(mark, at, end) >= 0:
            return True
    return False
