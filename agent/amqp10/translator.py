"""Lets the data path, which speaks AMQP 0-9-1, use a broker that speaks AMQP 1.0.

A `Translator` stands between a `WireConnection` and the socket: to the one it is a transport with a 0-9-1 broker behind
it, to the other a client of AMQP 1.0. Channels become sessions, each with one link to the address that the connection
is for; deliveries, publishes, acknowledgements and confirms become transfers and dispositions, a prefetch becomes
credit. So the flow, what is refused, its limits and its status are the same for both protocols.

Why: docs/decisions/0063-amqp10-by-translation.md
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast

from agent.amqp.connect import Wired
from agent.amqp.wire import frames as wire
from agent.amqp.wire import methods
from agent.amqp.wire.budget import Budget, Turn
from agent.amqp.wire.connection import WireConnection
from agent.amqp.wire.login import Terms
from agent.amqp.wire.methods import Method
from agent.amqp.wire.tables import MAX_SHORT, CodecError
from agent.amqp10 import performatives
from agent.amqp10.conditions import PeerRefusal, refusal_of
from agent.amqp10.handshake import LARGEST_FRAME, UNKNOWN, Handshake, PeerLimits
from agent.amqp10.link import LinkSession
from agent.amqp10.receiving import WIRE_FRAME
from agent.amqp10.session import TranslatedSession
from agent.amqp10.terminus import Terminus
from agent.core.addresses.uri import AmqpUri
from agent.errors import AgentError, BrokerError, TransientError

MOST_WAITING: Final = 8 * 1024 * 1024
"""The most bytes of messages that wait for the peer's credit; with more, nothing is read for its address."""
BLOCKED_AFTER: Final = 1.0  # seconds without credit
LEAST_BEAT: Final = 0.5  # seconds; a peer that wants to hear something more often may hang up
MOST_UNREAD: Final = 1024 * 1024  # bytes of answers to a peer that reads none of them
_CHANNEL_OPEN: Final = struct.pack(">HH", *methods.CHANNEL_OPEN.ids)
_TRANSFER: Final = b"\x00\x53\x14\xc0"  # with its fields in a short list
_MOST_CHANNELS: Final = 65_535
_MOST_LOOKED_AT: Final = 512  # letters of a text in which secrets are looked for
_NOTHING: Final = memoryview(b"")  # where an empty part of a message would keep all of it
_NO_CREDIT: Final = "the broker gives no credit: its queue is full, or it has an alarm"


class Translator(asyncio.Transport, asyncio.Protocol):
    """One connection; `wire` is its 0-9-1 side."""

    def __init__(
        self,
        terms: Terms,
        terminus: Terminus,
        *,
        name: str,
        hostname: str,
        is_anonymous: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`name` is shown by the broker; `is_anonymous`: the URI names no user."""
        super().__init__()
        self.wire = WireConnection(replace(terms, frame_max=None), clock=clock)  # which is for AMQP 0-9-1
        self.name = name
        self.limits = UNKNOWN
        self.largest_frame = performatives.SMALLEST  # that the peer takes
        self.user = b""
        self._terminus = terminus
        self._loop = asyncio.get_running_loop()
        self._socket: asyncio.Transport | None = None
        self._handshake: Handshake | None = Handshake(
            terms, name=name, hostname=hostname, is_anonymous=is_anonymous, send=self.send
        )
        self._received = b""  # the beginning of a frame, or what is read in the next turn
        self._budget = Budget(clock, Turn.of(self._loop))
        self._is_behind = False  # has read all that it may in this turn
        self._has_stopped = False  # taking anything off the socket
        self._from_wire = b""  # the beginning of a frame
        self._sessions: dict[int, TranslatedSession] = {}  # by the wire's channel
        self._by_peer: dict[int, TranslatedSession] = {}  # by the peer's channel
        self._for_peer: list[bytes | memoryview] = []
        self._for_wire: list[bytes | memoryview] = []
        self._unfed = _NOTHING
        self._is_paused = False  # the wire takes nothing
        self._is_closing = False  # as the wire asked
        self._holders: set[object] = set()  # of what the wire writes
        self._unread = 0  # bytes of answers, since the socket is full
        self._waiting: set[object] = set()  # for credit
        self._blocks: asyncio.TimerHandle | None = None
        self._credited_at = 0.0
        self._is_blocked = False
        self._beats: asyncio.TimerHandle | None = None

    @property
    def is_full(self) -> bool:
        return self in self._holders

    # What the socket calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self.wire.connection_made(self)
        if self._handshake is not None:
            self._handshake.begin()
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self.wire.closed.done():
            return
        self._received = self._received + data if self._received else data
        if not self._is_behind:
            self._go_on()

    def _go_on(self) -> None:
        """Translate what was received, as much as one turn of the loop allows."""
        self._is_behind = False
        if self.wire.closed.done():
            return
        if self._loop.time() > self.wire.permit.until:  # another agent may run the links
            self.wire.abort(self.wire.permit.end())
            return
        self._guarded(self._read, self.wire.abort)
        self._feed()

    def _guarded(self, step: Callable[[], None], end: Callable[[BrokerError], None]) -> None:
        """Run `step`; whatever bytes come, they end no more than the connection."""
        try:
            step()
        except BrokerError as error:
            end(error)
        except (AgentError, ValueError, LookupError, struct.error) as error:
            end(TransientError(f"broken AMQP 1.0: {error}", cause=error))

    def eof_received(self) -> None:
        if self._handshake is None:  # otherwise the reason follows, or is found, with the end
            self.wire.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._handshake is not None and self._handshake.lost is not None:
            self._close(self._handshake.lost)
            self._feed()
        for timer in (self._beats, self._blocks):
            if timer is not None:
                timer.cancel()
        self.wire.connection_lost(exc)
        for session in self._sessions.values():  # or the messages here would wait for a full collection
            session.leave()
        self._received, self._from_wire, self._unfed = b"", b"", _NOTHING
        self._for_peer.clear()
        self._for_wire.clear()

    def pause_writing(self) -> None:
        self._hold(self)

    def resume_writing(self) -> None:
        self._unread = 0
        self._release(self)
        for session in tuple(self._sessions.values()):
            session.write()
        self._flush()

    # What the wire calls

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._guarded(lambda: self._written(bytes(data)), self._abort_soon)
        self._flush()
        if self._for_wire:
            self._loop.call_soon(self._feed)  # not now: it is the wire that calls

    def _written(self, data: bytes) -> None:
        received = self._from_wire + data if self._from_wire else data
        at, end = 0, len(received)
        if self._handshake is not None and received.startswith(wire.PROTOCOL_HEADER):
            at = len(wire.PROTOCOL_HEADER)
        while end - at >= wire.OVERHEAD:
            kind, number, size = wire.PREFIX.unpack_from(received, at)
            after = at + wire.OVERHEAD + size
            if after > end:
                break
            self._translate(kind, number, received[at + 7 : after - 1])
            at = after
        self._from_wire = received[at:]

    def _abort_soon(self, error: BrokerError) -> None:
        self._loop.call_soon(self.wire.abort, error)

    def pause_reading(self) -> None:
        self._is_paused = True
        self._stop_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._loop.call_soon(self._feed)

    def is_closing(self) -> bool:
        return self._socket is None or self._socket.is_closing()

    def close(self) -> None:
        self._flush()
        if self._socket is not None:
            self._socket.close()

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._socket is None else self._socket.get_extra_info(name, default)

    # What sessions call

    def send(self, data: bytes | memoryview) -> None:
        self._for_peer.append(data)

    def feed(self, data: bytes | memoryview) -> None:
        self._for_wire.append(data)

    def waits_for_credit(self, session: object, size: int) -> None:
        if not size:
            self._waiting.discard(session)
            self._release(session)
            self._unblock()
            return
        self._waiting.add(session)
        if size > MOST_WAITING:
            self._hold(session)
        if self._blocks is None and not self._is_blocked:
            self._credited_at = self._loop.time()
            self._blocks = self._loop.call_later(BLOCKED_AFTER, self._block)

    def lost(self, number: int, reasons: Iterable[str]) -> None:
        self.wire.lost(number, reasons)

    def rejected(self, number: int, text: str) -> None:
        self.wire.rejected(number, self.shown(text))

    def unapplied(self, number: int, names: tuple[str, ...]) -> None:
        self.wire.unapplied(number, names)

    def shown(self, text: str) -> str:
        found = self.wire.redacted(text[:_MOST_LOOKED_AT])  # before it is cut: half a secret isn't found
        return found.encode(errors="replace")[:MAX_SHORT].decode(errors="ignore")

    def later(self, step: Callable[[], None]) -> None:
        def done() -> None:
            step()
            self._feed()

        self._loop.call_later(BLOCKED_AFTER, done)

    def credited(self) -> None:
        self._credited_at = self._loop.time()

    def forget(self, session: LinkSession) -> None:
        if self._sessions.get(session.number) is session:  # the number may be that of another one by now
            del self._sessions[session.number]
        self._by_peer = {number: each for number, each in self._by_peer.items() if each is not session}
        self.waits_for_credit(session, 0)

    # Inside: to the peer

    def _translate(self, kind: int, number: int, payload: bytes) -> None:
        if kind == wire.HEARTBEAT:
            self.send(performatives.EMPTY)
        elif not number:
            self._connection_method(payload)
        elif payload.startswith(_CHANNEL_OPEN) and kind == wire.METHOD:
            self._sessions[number] = TranslatedSession(number, self._terminus, self)
            self._sessions[number].method(payload)
        elif (session := self._sessions.get(number)) is None:
            return  # the peer has ended it
        elif kind == wire.METHOD:
            session.method(payload)
        else:
            session.content(kind, payload)

    def _connection_method(self, payload: bytes) -> None:
        call = methods.decode(payload)
        match call.method:
            case methods.CONNECTION_START_OK if self._handshake is not None and self._handshake.peer is not None:
                limits = self._handshake.peer
                self._handshake = None
                most = min(limits.channel_max + 1, _MOST_CHANNELS)
                self._say(methods.CONNECTION_TUNE, channel_max=most, frame_max=WIRE_FRAME)
            case methods.CONNECTION_OPEN:
                self._say(methods.CONNECTION_OPEN_OK)
            case methods.CONNECTION_CLOSE:
                self._is_closing = True
                self.send(performatives.frame(0, performatives.CLOSE.encode()))

    def _flush(self) -> None:
        if not self._for_peer or self._socket is None:
            return
        data = b"".join(self._for_peer)
        self._for_peer.clear()
        if not self._socket.is_closing():
            self._socket.write(data)

    def _hold(self, holder: object) -> None:
        if not self._holders:
            self.wire.pause_writing()
        self._holders.add(holder)

    def _release(self, holder: object) -> None:
        if holder in self._holders:
            self._holders.discard(holder)
            if not self._holders:
                self.wire.resume_writing()

    def _beat(self, every: float) -> None:
        self.send(performatives.EMPTY)
        self._flush()
        self._beats = self._loop.call_later(every, self._beat, every)

    # Inside: to the wire

    def _read(self) -> None:
        """Translate what is complete. A peer decides how much work a byte is, so what a turn has no time for is left
        for the next one."""
        data, at, budget = self._received, 0, self._budget
        budget.start()
        while (after := self._read_one(data, at)) > at:
            at = after
            if budget.is_spent():
                self._is_behind = True
                budget.turn.put_off(self._go_on)
                self._stop_reading()
                break
        self._received = data[at:]
        if self in self._holders:
            self._unread += sum(map(len, self._for_peer))
            if self._unread > MOST_UNREAD:
                raise CodecError("the peer reads none of the answers that it asks for")
        if self._handshake is None and not self._for_wire:  # it speaks, whatever it says
            self.feed(wire.HEARTBEAT_FRAME)
        self._flush()

    def _read_one(self, data: bytes, at: int) -> int:
        """The end of the header or frame at `at`, which is done then; `at` itself if it isn't complete."""
        if self._handshake is not None and self._handshake.peer is None:
            return self._log_in(self._handshake, data, at)
        found = performatives.find_frame(data, at, LARGEST_FRAME)
        if found is None:
            return at
        kind, number, begin, after = found
        if kind != performatives.AMQP:
            raise CodecError("a frame of the login after it")
        if begin < after:
            self._performed(number, data, begin, after)
        return after

    def _stop_reading(self) -> None:
        if self._socket is not None and not self._socket.is_closing():
            self._has_stopped = True
            self._socket.pause_reading()

    def _log_in(self, handshake: Handshake, data: bytes, at: int) -> int:
        after = handshake.take(data, at)
        self.wire.mechanism = handshake.mechanism
        if after > at and handshake.refusal is not None:
            self._close(handshake.refusal)
        elif handshake.peer is not None:
            self._opened(handshake.peer)
        return after

    def _opened(self, limits: PeerLimits) -> None:
        self.limits = limits
        self.user = self._handshake.user if self._handshake is not None else b""
        self.largest_frame = min(limits.largest_frame, LARGEST_FRAME)
        if limits.idle:
            self._beat(max(limits.idle / 2, LEAST_BEAT))
        offered = "PLAIN AMQPLAIN EXTERNAL"  # the login is done
        self._say(methods.CONNECTION_START, minor=9, properties=limits.properties, mechanisms=offered, locales="en_US")

    def _performed(self, number: int, data: bytes, begin: int, after: int) -> None:
        session = self._by_peer.get(number)
        if session is not None and data[begin : begin + 4] == _TRANSFER and session.quickly(data, begin, after):
            return
        performed, payload = performatives.decode(data, begin, end=after)
        if performed.performative is performatives.CLOSE:
            self._closed(performed["error"])
            return
        if performed.performative is performatives.BEGIN:
            session = self._begun(number, performed["remote_channel"])
        elif session is None:
            raise CodecError(f"{performed.performative.name} in no session")
        session.performed(performed, memoryview(data)[payload:after])

    def _begun(self, number: int, answered: int | None) -> TranslatedSession:
        session = None if answered is None else self._sessions.get(answered + 1)
        if session is None or number in self._by_peer or session in self._by_peer.values():
            raise CodecError("a session that wasn't asked for")
        self._by_peer[number] = session
        return session

    def _closed(self, error: Any) -> None:
        if self._is_closing:
            self._say(methods.CONNECTION_CLOSE_OK)
            return
        self.send(performatives.frame(0, performatives.CLOSE.encode()))
        self._close(refusal_of(error))

    def _close(self, refusal: PeerRefusal) -> None:
        self._say(methods.CONNECTION_CLOSE, code=refusal.code, text=self.shown(refusal.text))

    def _block(self) -> None:
        """Report that the peer takes nothing, if it has given no credit for so long."""
        self._blocks = None
        left = self._credited_at + BLOCKED_AFTER - self._loop.time()
        if left > 0:
            self._blocks = self._loop.call_later(left, self._block)
        elif self._waiting and len(self._waiting) < len(self._sessions):
            self._blocks = self._loop.call_later(BLOCKED_AFTER, self._block)  # others may have nothing to write yet
        elif self._waiting:
            self._is_blocked = True
            self._say(methods.CONNECTION_BLOCKED, reason=_NO_CREDIT)
            self._feed()

    def _unblock(self) -> None:
        if self._blocks is not None and not self._waiting:
            self._blocks.cancel()
            self._blocks = None
        if self._is_blocked:
            self._is_blocked = False
            self._say(methods.CONNECTION_UNBLOCKED)

    def _say(self, method: Method, **values: Any) -> None:
        self.feed(wire.frame(wire.METHOD, 0, method.encode(**values)))

    def _feed(self) -> None:
        """Hand to the wire what was translated, as much as it takes now."""
        while (self._unfed or self._for_wire) and not self._is_paused and not self.wire.closed.done():
            if not self._unfed:
                self._unfed = memoryview(b"".join(self._for_wire))
                self._for_wire.clear()
            room = self.wire.get_buffer(-1)
            size = min(len(room), len(self._unfed))
            room[:size] = self._unfed[:size]
            self._unfed = self._unfed[size:] or _NOTHING
            self.wire.buffer_updated(size)
        if self._has_stopped and not (self._is_paused or self._is_behind):
            self._has_stopped = False
            if self._socket is not None and not self._socket.is_closing():
                with suppress(RuntimeError):  # as `Inbound` does
                    self._socket.resume_reading()


def translated(terminus: Terminus, name: str) -> Wired:
    """Makes connections for this terminus. A URI's path is a vhost of RabbitMQ; other brokers get the host's name."""

    def wired(uri: AmqpUri, terms: Terms) -> tuple[WireConnection, asyncio.BaseProtocol]:
        hostname = uri.hostname or (uri.connect_host if uri.path is None else f"vhost:{terms.vhost}")
        is_anonymous = uri.user is None and not uri.mechanisms
        translator = Translator(terms, terminus, name=name, hostname=hostname, is_anonymous=is_anonymous)
        return translator.wire, translator

    return wired
