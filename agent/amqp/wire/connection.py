"""One AMQP connection: handshake, heartbeats, channels, and the frames between a socket and them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import CLOSE_PATIENCE, REPLY_SUCCESS, Channel, UnansweredError
from agent.amqp.wire.ends import (
    STANDSTILL,
    ConnectionClosedError,
    EndOfStreamError,
    HeartbeatMissedError,
    Permit,
    one_line,
)
from agent.amqp.wire.inbound import Inbound
from agent.amqp.wire.login import Terms, client_properties, lower
from agent.amqp.wire.methods import Call, Method
from agent.amqp.wire.tables import CodecError
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import Mechanism
from agent.core.fields import Table
from agent.errors import BrokerError, Failure, FailureKind, TransientError

MOST_CHANNELS: Final = 65_535
LOOKS: Final = 10  # at open questions, in the time that a broker has for an answer
MOST_UNREAD_ANSWERS: Final = 1_000
_HANDSHAKE: Final = 3  # methods that the broker sends before the vhost is open
_KINDS: Final = frozenset({frames.METHOD, frames.HEADER, frames.BODY, frames.HEARTBEAT})


class WireConnection(asyncio.BufferedProtocol):
    """One AMQP connection. What a transport brings goes through `Inbound`; everything else is here."""

    def __init__(self, terms: Terms, *, clock: Callable[[], float] = time.perf_counter) -> None:
        loop = asyncio.get_running_loop()
        self.server_properties: Table = ()
        self.frame_max = 0
        self.channel_max = 0
        self.heartbeat = 0
        self.on_blocked: Callable[[str | None], None] | None = None
        self.permit = Permit()
        self.closed: asyncio.Future[BrokerError] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()
        self._terms = terms
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._channels: dict[int, Channel] = {}
        self._abandoned: set[int] = set()
        self._last_number = 0
        self._inbox: asyncio.Queue[Call] = asyncio.Queue()
        self._is_asking = True  # on channel 0: in the handshake, and for the end
        self._secrets: deque[asyncio.Future[None]] = deque()  # that the broker has yet to accept
        self.inbound = Inbound(self._dispatch, self._end, clock)
        self._said = loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self.blocked: str | None = None  # why the broker takes no messages
        # Brokers hold up who publishes, and only that: where nothing is published, an alarm is no reason for silence.
        self.answers_while_blocked = False
        self._looked_at = self._can_answer_since = loop.time()
        self._looking: asyncio.TimerHandle | None = None
        self._full_since = 0.0
        self._unread_answers = 0
        self._fed = 0  # how many links write what is read here somewhere else
        self._batch: list[bytes] = []
        self._is_full = False
        self._feeders: Counter[WireConnection] = Counter()
        self.is_open = False
        self.mechanism: Mechanism | None = None
        self.explain: Callable[[BrokerError], BrokerError] = lambda error: error

    @property
    def where(self) -> str:
        """The side and the endpoint, with which errors begin."""
        return self._terms.where

    @property
    def account(self) -> tuple[str, str]:
        """The user of the URI, empty if a certificate decides who it is, and the vhost."""
        return "" if self.mechanism is Mechanism.EXTERNAL else self._terms.user, self._terms.vhost

    @property
    def said(self) -> float:
        """The time when anything was last written, by the loop's clock."""
        return self._said

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate that the broker showed, as DER; None without TLS."""
        tls = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        return None if tls is None else tls.getpeercert(binary_form=True)

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.inbound.begin(self._transport)
        self.write(frames.PROTOCOL_HEADER)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the protocol's signature
        return self.inbound.room()

    def buffer_updated(self, nbytes: int) -> None:
        if self.closed.done():
            return
        now = self.inbound.heard = self._loop.time()
        if now > self.permit.until:
            self._end(self.permit.end())
            return
        self.inbound.came(nbytes)

    def eof_received(self) -> None:
        self._end(EndOfStreamError("closed by the peer without a word"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(EndOfStreamError("the connection was lost", cause=exc))
        if self._timer is not None:  # it holds the buffers for as long as it waits
            self._timer.cancel()
        if not self._gone.done():
            self._gone.set_result(None)

    def pause_writing(self) -> None:
        """Stop reading on the connections whose messages are written here, since the broker takes less than comes and
        nothing may pile up.

        On a connection that messages come from, acknowledgements are written: with more messages there would be more of
        them.
        """
        self._is_full, self._full_since = True, self._loop.time()
        if self._fed:
            self.inbound.hold(self)
        for feeder in self._feeders:
            feeder.inbound.hold(self)

    def resume_writing(self) -> None:
        self._is_full, self._unread_answers = False, 0
        self.inbound.release(self)
        for feeder in self._feeders:
            feeder.inbound.release(self)

    # What its users call

    def write(self, data: bytes) -> None:
        if self._transport is None or self.closed.done():
            raise self.closed.result() if self.closed.done() else TransientError("not connected")
        self._said = self._loop.time()
        if self._said > self.permit.until:
            self._end(self.permit.end())
            raise self.closed.result()
        if self._batch:
            self._batch.append(data)
            data = b"".join(self._batch)
            self._batch.clear()
        self._transport.write(data)

    def answer(self, data: bytes) -> None:
        """Write what the peer asked for; raise CodecError if it asks for very much and doesn't read."""
        self._unread_answers += self._is_full
        if self._unread_answers > MOST_UNREAD_ANSWERS:
            raise CodecError("the peer reads none of the answers that it asks for")
        self.write(data)

    def write_soon(self, data: bytes) -> None:
        """Write with everything else that this turn of the loop brings: fewer and larger sends."""
        if not self._batch:
            self._loop.call_soon(self._write_batch)
        self._batch.append(data)

    def _write_batch(self) -> None:
        if self.closed.done():
            self._batch.clear()
        elif self._batch:
            self._write_unasked(b"")

    def _write_unasked(self, data: bytes) -> None:
        """Write what nobody waits for: if it ends the connection, its users learn that from its end."""
        try:  # noqa: SIM105 - it would make an object for each write
            self.write(data)
        except BrokerError:
            pass

    def redacted(self, text: str) -> str:
        return self._terms.redacted(text)

    def lost(self, number: int, reasons: Iterable[str]) -> None:
        """Count what a message of a channel lost by being converted to another protocol."""
        channel = self._channels.get(number)
        if channel is not None and channel.losses is not None:
            for reason in reasons:
                channel.losses[reason] = channel.losses.get(reason, 0) + 1

    def rejected(self, number: int, text: str) -> None:
        """Note why the message of a channel that was refused last was; empty if the broker doesn't say."""
        if (channel := self._channels.get(number)) is not None:
            channel.rejection = one_line(text)

    def unapplied(self, number: int, names: tuple[str, ...]) -> None:
        """Note which arguments of a channel's consumer the broker doesn't apply."""
        if (channel := self._channels.get(number)) is not None:
            channel.unapplied = names

    def forget(self, number: int) -> None:
        self._channels.pop(number, None)
        self.inbound.forget(number)

    def abandon(self, number: int) -> None:
        """Give up a channel as it is: its number must not be used again, nor this connection by anything new."""
        self.forget(number)
        self._abandoned.add(number)

    @property
    def free_channels(self) -> int:
        return (self.channel_max or MOST_CHANNELS) - len(self._channels) - len(self._abandoned)

    @property
    def is_spoiled(self) -> bool:
        """True if there are channels that can't be closed; only the connection's end frees what the broker keeps."""
        return bool(self._abandoned)

    def fed_by(self, feeder: WireConnection) -> None:
        """Record that one more link writes here what is read from `feeder`, which is held back while this connection is
        full."""
        self._feeders[feeder] += 1
        feeder._fed += 1
        if self._is_full:
            feeder.inbound.hold(self)

    def starved_by(self, feeder: WireConnection) -> None:
        """Record that one of the links that read from `feeder` and wrote here has ended."""
        self._feeders[feeder] -= 1
        feeder._fed -= 1
        if self._feeders[feeder] <= 0:
            del self._feeders[feeder]
            feeder.inbound.release(self)

    async def open(self, properties: Mapping[str, str]) -> None:
        """Do the handshake, until the vhost is open."""
        start = await self._expect(methods.CONNECTION_START)
        self.server_properties = start["properties"]
        mechanism = self.mechanism = self._terms.choose(start["mechanisms"])
        self._say(
            methods.CONNECTION_START_OK,
            properties=client_properties(properties),
            mechanism=mechanism.value.upper(),
            response=self._terms.response(mechanism),
            locale="en_US",
        )
        self._tune(await self._expect(methods.CONNECTION_TUNE))
        self._say(methods.CONNECTION_OPEN, vhost=self._terms.vhost)
        await self._expect(methods.CONNECTION_OPEN_OK)
        self.is_open, self._is_asking = True, False
        self.inbound.open(self.frame_max)
        self._look_at_questions()

    def begin_channel(self) -> Channel:
        """Begin a channel; the broker has yet to answer its opening."""
        channel = self.reserve_channel()
        channel.open()
        return channel

    def reserve_channel(self) -> Channel:
        """Keep a number for a channel that is opened when it is needed; raise BrokerError if the connection has ended,
        as nothing would end the channel then."""
        if self.closed.done():
            raise self.closed.result()
        number = self._free_number()
        channel = self._channels[number] = Channel(self, number)
        return channel

    async def update_secret(self, secret: Secret, reason: str) -> None:
        """Give the broker another password or token, before the one that it knows ends; raise the error if it isn't
        accepted.

        An answer may come after the deadline, so it is expected for as long as the connection lives.
        """
        accepted: asyncio.Future[None] = self._loop.create_future()
        self._terms = self._terms.with_password(secret)
        self._say(methods.CONNECTION_UPDATE_SECRET, new_secret=secret.reveal(), reason=reason)
        self._secrets.append(accepted)
        patience = self._terms.patience
        waited: list[asyncio.Future[Any]] = [accepted, self.closed]
        await asyncio.wait(waited, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if accepted.done():
            return
        if self.closed.done():
            raise self.closed.result()
        accepted.cancel()
        question = methods.CONNECTION_UPDATE_SECRET.name
        raise UnansweredError(f"no answer to {question} within {patience:g} s", where=self.where)

    async def close(self, error: BrokerError, *, patience: float = CLOSE_PATIENCE) -> None:
        """Close the connection in order; requests that still wait get `error`."""
        if self.closed.done():
            return
        for channel in tuple(self._channels.values()):
            channel.end(error)
        self.inbound.release_all()  # the answer has to be read
        self._is_asking = True
        try:
            self._say(methods.CONNECTION_CLOSE, code=REPLY_SUCCESS, text="closed by the agent")
            async with asyncio.timeout(patience):
                await self._expect(methods.CONNECTION_CLOSE_OK)
        except (TimeoutError, BrokerError):
            pass
        finally:
            self._end(error, gently=True)
        await self._gone

    def abort(self, error: BrokerError) -> None:
        """Close the socket without an AMQP close."""
        self._end(error)

    # Inside

    def _free_number(self) -> int:
        limit = self.channel_max or MOST_CHANNELS
        for _ in range(limit):
            self._last_number = self._last_number % limit + 1
            if self._last_number not in self._channels and self._last_number not in self._abandoned:
                return self._last_number
        what = f"all {limit} channels of a connection are in use: raise channel_max, of which a link needs at least 4"
        raise TransientError(what, where=self.where)

    def _tune(self, tune: Call) -> None:
        self.channel_max = lower(self._terms.channel_max, tune["channel_max"])
        self.frame_max = self._terms.agree_on_frame_max(tune["frame_max"])
        self.heartbeat = self._terms.heartbeat
        self._say(
            methods.CONNECTION_TUNE_OK, channel_max=self.channel_max, frame_max=self.frame_max, heartbeat=self.heartbeat
        )
        if self.heartbeat:
            self._beat()

    def _beat(self) -> None:
        """Send a heartbeat if nothing was written for half the interval, and end the connection if nothing was received
        for twice the interval. If this is called late, nothing was read for as long: the peer isn't silent, the agent
        stood still."""
        now, half = self._loop.time(), self.heartbeat / 2
        inbound, is_late = self.inbound, self._timer is not None and now - self._timer.when() > STANDSTILL
        left = max(inbound.heard, inbound.reads_since) + 2 * self.heartbeat - now
        if left <= 0 and inbound.counts_all and not is_late:
            self._end(HeartbeatMissedError(f"nothing was received for {2 * self.heartbeat} s"))
            return
        if now - self._said >= half and not self.closed.done():
            self._write_unasked(frames.HEARTBEAT_FRAME)
        if self.closed.done():
            return
        self._timer = self._loop.call_later(min(half, left) if left > 0 else half, self._beat)

    def _look_at_questions(self) -> None:
        """End channels whose requests got no response in time, without the time in which none could have come; end the
        connection if the broker has read nothing for that long.

        A blocked broker may read no request, and no response is read while reading is held. If this is called late,
        nothing was read for as long.
        """
        patience, now = self._terms.patience, self._loop.time()
        if self._is_full and self._fed and now - self._full_since >= patience:
            facts = Failure(FailureKind.NOT_READING)
            self._end(TransientError(f"the broker has read nothing for {patience:g} s", facts=facts))
            return
        is_late = now - self._looked_at > 2 * patience / LOOKS
        self._looked_at = now
        if self.inbound.is_held or is_late or (self.blocked is not None and not self.answers_while_blocked):
            self._can_answer_since = now
        since = max(self._can_answer_since, self.inbound.released_at)
        for channel in tuple(self._channels.values()):
            channel.look_at_questions(patience=patience, since=since)
        if not self.closed.done():
            self._looking = self._loop.call_later(patience / LOOKS, self._look_at_questions)

    def _say(self, method: Method, **values: Any) -> None:
        self.write(frames.frame(frames.METHOD, 0, method.encode(**values)))

    async def _expect(self, method: Method) -> Call:
        """Return the next method of channel 0; raise BrokerError if the connection ends first, or if it is another
        method."""
        getting = asyncio.ensure_future(self._inbox.get())
        try:
            waited: list[asyncio.Future[Any]] = [getting, self.closed]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                raise self.closed.result()
            call = getting.result()
        finally:
            getting.cancel()
        if call.method is not method:
            error = TransientError(f"broken AMQP: {call.method.name} came where {method.name} was due")
            self._end(error)
            raise error
        return call

    def _dispatch(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.HEARTBEAT:
            return
        if kind not in _KINDS:
            raise CodecError(f"a frame of the unknown kind {kind}")
        if number and not self.is_open:
            raise CodecError("a frame of a channel before the connection is open")
        if number:
            channel = self._channels.get(number)
            if channel is not None:  # what was on its way to a closed channel is dropped
                channel.received(kind, payload)
            return
        if kind != frames.METHOD:
            raise CodecError("content on channel 0")
        if not self.closed.done():
            self._called(methods.decode(payload))

    def _called(self, call: Call) -> None:
        """Handle a method of the connection itself."""
        match call.method:
            case methods.CONNECTION_CLOSE:
                self._say(methods.CONNECTION_CLOSE_OK)
                self._end(ConnectionClosedError(call["code"], one_line(self.redacted(call["text"]))), gently=True)
            case methods.CONNECTION_BLOCKED | methods.CONNECTION_UNBLOCKED:
                is_blocked = call.method is methods.CONNECTION_BLOCKED
                self.blocked = one_line(self.redacted(call["reason"])) if is_blocked else None
                self._can_answer_since = self._loop.time()
                if self.on_blocked is not None:
                    self.on_blocked(self.blocked)
            case methods.CONNECTION_UPDATE_SECRET_OK if self._secrets:
                accepted = self._secrets.popleft()
                if not accepted.done():
                    accepted.set_result(None)
            case _ if not self._is_asking or self._inbox.qsize() >= _HANDSHAKE:
                raise CodecError(f"{call.method.name}, which nothing asked for")
            case _:
                self._inbox.put_nowait(call)

    def _end(self, error: BrokerError, *, gently: bool = False) -> None:
        """End the connection. `gently` writes what is still to be sent; if the peer doesn't take it, the socket is
        closed all the same."""
        if self.closed.done():
            return
        error = self.explain(error)
        self.closed.set_result(error)
        self.inbound.finish()
        self.on_blocked = None
        for timer in (self._timer, self._looking):
            if timer is not None:
                timer.cancel()
        if self._transport is None:
            self._gone.set_result(None)
        elif gently:
            self._transport.close()
            self._timer = self._loop.call_later(CLOSE_PATIENCE, self._transport.abort)
        else:
            self._transport.abort()
        self.resume_writing()
        for channel in tuple(self._channels.values()):
            channel.end(error)
