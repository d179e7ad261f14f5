"""Sends a probe through an exchange link every few seconds: it proves that the link delivers, and shows its lag.

A probe is published into the link's own queue upstream, behind all that waits there. The link publishes it to a private
queue downstream instead of the exchange, and its arrival there is its answer, on one clock.

It never expires, since a policy may dead-letter what does into a queue of a user. No other one is sent while it is on
its way, so a session that ends leaves one at most, which the plugin would forward if it took over.

Why: docs/decisions/0016-cheap-probes.md
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import Shared
from agent.amqp.data import header_table
from agent.amqp.data.probe import token_of
from agent.amqp.data.publish_tracker import Counts
from agent.amqp.rpc import look_at_queue, refusal, refused_while
from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import Channel, ChannelClosedError, Message
from agent.amqp.wire.properties import HEADERS, Properties
from agent.core.links.lag import OnItsWay, Passage
from agent.core.rules import names
from agent.core.rules.headers import PROBE
from agent.errors import BrokerError, Side, happening_on
from agent.links.flow import Flow

SILENT: Final = 2.8
"""Intervals without an answer after which a link isn't proved to deliver. The check runs once a second: with `probe:
10s`, a link that delivers nothing is seen before 30 seconds are over."""
QUEUE: Final = names.AGENT_PREFIX + "probes "
LOOKS: Final = 2
"""Looks at the queue in an interval, while a probe is on its way: another probe follows in time if it is lost."""

Opener = Callable[[], Awaitable[Shared]]


class Probing:
    """The probes of one session; `run` sends them."""

    def __init__(self, queue: str, interval: float, *, flow: Flow, counts: Counts, down: Connection) -> None:
        self.answers = 0
        self.last_answer: float | None = None  # in seconds since 1970
        self._queue = queue
        self._interval = interval
        self._flow = flow
        self._counts = counts
        self._down = down
        self._loop = asyncio.get_running_loop()
        self._private = QUEUE + secrets.token_hex(8)
        self._on_its_way: OnItsWay | None = None
        self._lag: float | None = None
        self._proved_at = self._loop.time()
        self._forwarded = 0
        self._is_listening = False
        self._trouble: BrokerError | None = None
        self._upstream: Connection | None = None  # where probes are published

    @property
    def lag(self) -> float | None:
        """The seconds that the last probe took; more if the next one has waited for longer; None before the first one
        arrives."""
        waiting = self._loop.time() - self._on_its_way.sent if self._on_its_way else 0.0
        return None if self._lag is None else max(self._lag, waiting)

    def observe(self, now: float, *, forwarded: int, is_blocked: bool) -> str:
        """The reason why it isn't proved that the link delivers; empty if it is. Messages that get through prove it,
        too."""
        is_blocked = is_blocked or (self._upstream is not None and self._upstream.wire.blocked is not None)
        if is_blocked or forwarded != self._forwarded:
            self._forwarded, self._proved_at = forwarded, now
        waited = now - self._proved_at
        if waited < SILENT * self._interval:
            return ""
        hint = "look for what holds up the link's queue, and at the downstream"
        why = hint if self._trouble is None else str(self._trouble)
        return f"no probe has come through for {SILENT * self._interval:g} s: {why}"

    @property
    def trouble_is_at(self) -> Side:
        """The side at which probes can't be sent or received, if that is why none comes through; otherwise the
        downstream."""
        return (self._trouble.side if self._trouble is not None else None) or Side.DOWNSTREAM

    def publish(self, token: bytes, channel: int) -> bytes | None:
        """See `Probes`."""
        if self._on_its_way is None or token != self._on_its_way.token:
            return None
        if not self._is_listening:
            self._on_its_way = None
            return None
        return frames.frame(frames.METHOD, channel, methods.BASIC_PUBLISH.encode(routing_key=self._private))

    async def run(self, opener: Opener) -> None:
        """Send probes until cancelled. `opener` opens the connection to publish them on; a failure is shown, and tried
        again."""
        while True:
            try:
                with happening_on(Side.UPSTREAM):
                    opened = await opener()
                async with opened as upstream:
                    self._upstream = upstream.connection
                    await self._probe(upstream.connection)
            except BrokerError as error:
                self._trouble = error
            finally:
                self._is_listening, self._upstream = False, None
            await asyncio.sleep(self._interval)

    async def _probe(self, upstream: Connection) -> None:
        with happening_on(Side.UPSTREAM):
            out = upstream.wire.begin_channel()
        into = self._down.wire.begin_channel()
        try:
            await self._listen(into)
            for beat in count():
                await self._look(upstream, out)
                if beat % LOOKS == 0:
                    self._send(out)
                done, _ = await asyncio.wait(
                    (out.closed, into.closed), timeout=self._interval / LOOKS, return_when=asyncio.FIRST_COMPLETED
                )
                if done:
                    raise self._ended(out, into, upstream)
        finally:
            out.leave()
            into.leave()

    def _ended(self, out: Channel, into: Channel, upstream: Connection) -> BrokerError:
        """The error with which one of the channels was closed, with its side."""
        is_upstream = out.closed.done()
        error = (out if is_upstream else into).closed.result()
        if isinstance(error, ChannelClosedError):
            error = refusal(upstream if is_upstream else self._down, "publishing a probe", error)
        error.side = error.side or (Side.UPSTREAM if is_upstream else Side.DOWNSTREAM)
        return error

    async def _listen(self, channel: Channel) -> None:
        channel.on_message = self._arrived
        own = {"queue": self._private, "exclusive": True}
        with refused_while(self._down, "declaring a queue for probes"), happening_on(Side.DOWNSTREAM):
            await channel.ask(methods.QUEUE_DECLARE, auto_delete=True, **own)
            await channel.ask(methods.BASIC_CONSUME, no_ack=True, **own)
        self._is_listening = True

    async def _look(self, upstream: Connection, channel: Channel) -> None:
        """Look at the queue; if the probe was lost, another one may be sent."""
        way, flow = self._on_its_way, self._flow
        if way is None or upstream.wire.blocked is not None:  # what is blocked answers nothing
            return
        with refused_while(upstream, f"looking for queue {self._queue!r}"), happening_on(Side.UPSTREAM):
            found = await look_at_queue(channel, self._queue)
        seen = Passage(
            ready=found["messages"],
            underway=flow.in_flight + flow.unread,
            taken=self._counts.taken,
            prefetch=flow.prefetch,
        )
        if way is self._on_its_way and way.look(seen):
            self._on_its_way = None

    def _send(self, channel: Channel) -> None:
        if self._on_its_way is not None or self._upstream is None or self._upstream.wire.blocked is not None:
            return
        if self._down.wire.blocked is not None:  # it would be left behind if the plugin took over now
            return
        token = secrets.token_hex(16).encode()
        table = header_table.with_first(bytes(4), header_table.text_entry(PROBE, token))
        self._on_its_way = OnItsWay(token, self._loop.time())
        channel.publish("", self._queue, Properties(HEADERS, ((HEADERS, table),)).write(), b"")

    def _arrived(self, message: Message) -> None:
        token, now, way = token_of(message.properties.write()), self._loop.time(), self._on_its_way
        if way is None or token != way.token:
            return
        self._on_its_way = None
        self._lag, self._proved_at, self._trouble = now - way.sent, now, None
        self.last_answer = time.time()
        self.answers += 1
