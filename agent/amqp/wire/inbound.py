"""Reads what a peer sends into one buffer, and hands it out frame by frame, unless somebody holds it back.

Why: docs/decisions/0008-blocked-links-count.md
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from agent.amqp.wire import frames, methods
from agent.amqp.wire.budget import LARGEST_PORTION, Budget, Turn
from agent.amqp.wire.ends import NotAmqpError
from agent.amqp.wire.tables import CodecError
from agent.errors import AgentError, BrokerError, TransientError

MOST_UNREAD: Final = 1024 * 1024  # bytes of a connection; more stays in the socket
_IDS: Final = struct.Struct(">I")
_DELIVER: Final = 60 << 16 | 60
_CLOSE: Final = 10 << 16 | 50


class Unread:
    """Counts the deliveries in a buffer, from its beginning on; the buffer only grows meanwhile."""

    def __init__(self) -> None:
        self.deliveries: Counter[int] = Counter()  # by channel
        self._counted_to = 0

    def look(self, buffer: bytearray, end: int) -> bytes | None:
        """Count the new frames; return the payload by which the peer closes the connection, if it is there."""
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


BUFFER: Final = 256 * 1024
IDLE_BUFFER: Final = 16 * 1024
"""Until a frame comes in parts: most connections of many links carry little."""

Receive = Callable[[int, int, bytes], None]
"""Called with the kind, the channel and the payload of a frame."""


def _nothing(*_: object) -> None:
    pass


class Taker(Protocol):
    """Consumes whole frames of one channel from `at` on, and returns where it stopped: behind at least one, unless it
    holds the connection until it can go on."""

    def take(self, buffer: bytearray, at: int, end: int) -> int: ...


class Inbound:
    """Receives the frames of one connection. Nothing is copied on the way in. What peers send is read a `Turn` at a
    time: the rest waits in the buffer and in the socket."""

    def __init__(self, receive: Receive, end: Callable[[BrokerError], None], clock: Callable[[], float]) -> None:
        """`receive` is called with each frame that has no taker, `end` with the error that breaks the connection."""
        self._receive = receive
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._largest_body = 0  # of a frame; 0 before the connection is open
        self._is_over = False
        self.heard = self._loop.time()  # anything, from the peer, last
        self.reads_since = self.heard  # what came before is still in the socket where it wasn't read
        self.released_at = self.heard  # the last time that everybody let go
        self._buffer = bytearray(IDLE_BUFFER)
        self._is_enough_for = 0  # the largest frame of which the rest may come into the same buffer
        self._filled = 0
        self._greeted = False
        self._budget = Budget(clock, Turn.of(self._loop))
        self._most_at_once = LARGEST_PORTION
        self._has_turn = False  # soon, to read what was put off
        self._is_behind = False  # has read all that it may until then
        self._takers: dict[int, Taker] = {}
        self._holders: set[object] = set()
        self._counting: set[object] = set()  # of the holders
        self._unread: Unread | None = None  # while one of them counts

    # What the connection calls

    def begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def open(self, frame_max: int) -> None:
        """Allow frames as large as was agreed on."""
        self._largest_body = max(frame_max, methods.LARGEST)

    def finish(self) -> None:
        """Stop: what was read already must not be read again, and nothing may keep the connection in memory, or what
        keeps it its buffer."""
        self._is_over = True
        self._loop.call_soon(self._let_go)  # it may be reading
        self._receive = self._end = _nothing

    def _let_go(self) -> None:
        self._buffer, self._filled = bytearray(1), 0

    def room(self) -> memoryview:
        """The part of the buffer that the transport writes to."""
        # Some transports ask once more after the end, and none may be given an empty one.
        if self._filled == len(self._buffer):
            self._resize(self._filled + BUFFER)
        return memoryview(self._buffer)[self._filled :]

    def came(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._unread is not None:
            self._look_ahead()
        elif self._budget.turn.is_over:  # others have spent it
            self._put_off()
        else:
            self._guarded(self._read_frames)

    def divert(self, number: int, taker: Taker) -> None:
        """Give the channel's frames to `taker` from now on, as they are in the buffer."""
        self._takers[number] = taker

    def forget(self, number: int) -> None:
        self._takers.pop(number, None)

    # Who holds it back

    @property
    def is_held(self) -> bool:
        """True if anyone holds its reading."""
        return bool(self._holders)

    def hold(self, holder: object, *, counts: bool = False) -> None:
        """Hand nothing more out until every holder has let go.

        Nothing more is taken off the socket either, unless a holder `counts`: then up to `MOST_UNREAD`, to know how
        many deliveries wait here, and that the peer is still there.
        """
        self._holders.add(holder)
        if counts:
            self._counting.add(holder)
            self._count_unread()
        elif self._unread is None:
            self._pause()

    def release(self, holder: object) -> None:
        if holder not in self._holders:
            return
        self._holders.remove(holder)
        self._counting.discard(holder)
        if self._unread is not None and not self._counting:
            self._unread, self._is_behind = None, True
            self._pause()
        if not self._holders:
            self.reads_since = self.released_at = self._loop.time()
            if self._is_behind:
                self._schedule_turn()
            else:
                self._resume()

    def limit_portions(self, most: int | None) -> None:
        """Hand out no more than about so many bytes, but a whole frame, before it is looked whether anyone holds it."""
        self._most_at_once = LARGEST_PORTION if most is None else min(most, LARGEST_PORTION)

    def release_all(self) -> None:
        for holder in tuple(self._holders):
            self.release(holder)

    def unread_deliveries(self, number: int) -> int:
        """The number of deliveries to a channel that have come and are not handed out, as far as they are counted."""
        return self._unread.deliveries[number] if self._unread is not None else 0

    @property
    def counts_all(self) -> bool:
        """True if all that has come is handed out or counted."""
        is_counting = self._unread is not None and self._filled < MOST_UNREAD
        return is_counting or not (self._holders or self._is_behind)

    def _count_unread(self) -> None:
        if self._unread is None:
            self._unread, self.reads_since = Unread(), self._loop.time()
            self._loop.call_soon(self._begin_to_count)  # what is being handed out now isn't counted

    def _begin_to_count(self) -> None:
        if self._unread is not None and not self._is_over:
            self._is_behind = False
            self._resume()
            self._look_ahead()

    def _look_ahead(self) -> None:
        close = None if self._unread is None else self._unread.look(self._buffer, self._filled)
        if close is not None:
            self._guarded(lambda: self._receive(frames.METHOD, 0, close))
        elif self._filled >= MOST_UNREAD:
            self._pause()

    def _pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            with suppress(RuntimeError):  # uvloop closes one that nobody waits for any more, and doesn't say so
                self._transport.resume_reading()

    # Reading

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run `step`; whatever bytes the peer has sent, they end no more than the connection."""
        try:
            step()
        except BrokerError as error:
            self._end(error)
        except (AgentError, ValueError, LookupError, struct.error) as error:
            self._end(TransientError(f"broken AMQP: {error}", cause=error))

    def _read_frames(self) -> None:
        buffer, at, end, budget, awaited = self._buffer, 0, self._filled, self._budget, 0
        if not self._greeted:
            self._check_greeting()
        budget.start()
        while end - at >= frames.OVERHEAD:
            kind, channel, size = frames.PREFIX.unpack_from(buffer, at)
            after = at + frames.OVERHEAD + size
            if after > end:
                if size > self._largest(kind):
                    raise CodecError(f"a frame of {size} bytes")
                awaited = after - at
                break
            if buffer[after - 1] != frames.END:
                raise CodecError("a frame doesn't end where it says")
            taker = self._takers.get(channel)
            if taker is not None:
                at = taker.take(buffer, at, min(end, max(after, at + min(budget.portion, self._most_at_once))))
            else:
                self._receive(kind, channel, bytes(memoryview(buffer)[at + 7 : after - 1]))
                at = after
            if budget.is_spent(waking=taker is None and kind == frames.METHOD):
                self._put_off()
                break
            if self._holders:
                self._is_behind = True
                break
        self._keep(at)
        self._make_room(awaited)

    def _put_off(self) -> None:
        self._is_behind = True
        self._pause()
        self._schedule_turn()

    def _schedule_turn(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            self._budget.turn.put_off(self._next_turn)

    def _next_turn(self) -> None:
        """Read what the last turn left, and only then more from the socket."""
        self._has_turn = False
        if not self._is_behind or self._holders or self._is_over:
            return
        self._is_behind = False
        self._guarded(self._read_frames)
        if not self._is_behind and not self._holders and not self._is_over:
            self.reads_since = self._loop.time()
            self._resume()

    def _check_greeting(self) -> None:
        begin = bytes(self._buffer[: min(self._filled, 16)])
        if begin[:1] != b"\x01":
            raise NotAmqpError(begin)
        self._greeted = True

    def _make_room(self, awaited: int) -> None:
        """Make room for the frame that is awaited, and for more in the first buffer; replace a large buffer once its
        frame is gone."""
        if awaited > self._is_enough_for:
            self._resize(BUFFER if awaited <= BUFFER else awaited + BUFFER)
        elif self._is_enough_for > BUFFER > self._filled and awaited <= BUFFER:
            self._resize(BUFFER)

    def _largest(self, kind: int) -> int:
        """The largest frame of this kind that is allowed. Brokers cut bodies to the frames that were agreed on, but not
        headers. Nothing large comes before that."""
        if kind == frames.HEADER and self._largest_body:
            return frames.LARGEST
        return self._largest_body if kind == frames.BODY and self._largest_body else methods.LARGEST

    def _resize(self, size: int) -> None:
        # A new one: the transport may still hold a view of the old one, which then can't grow.
        resized = bytearray(size)
        resized[: self._filled] = self._buffer[: self._filled]
        self._buffer, self._is_enough_for = resized, size

    def _keep(self, at: int) -> None:
        """Move what is left of the buffer to its start."""
        left = self._filled - at
        if at:
            self._buffer[:left] = self._buffer[at : self._filled]
        self._filled = left
