"""A client's connection as the broker has it: handshake, heartbeats, channels."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from agent.amqp.failures import NOT_ALLOWED
from agent.amqp.wire import frames, methods
from agent.amqp.wire.methods import Call, Method
from agent.core import fields
from tests.simulation.broker.channels import Channel, Refused
from tests.simulation.network import Stream

if TYPE_CHECKING:
    from tests.simulation.broker.broker import Broker

FRAME_MAX: Final = 131_072
CHANNEL_MAX: Final = 2047
CAPABILITIES: Final = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)


decode = lru_cache(20_000)(methods.decode)  # agents say the same again and again


@lru_cache(20_000)
def encoded(number: int, method: Method, *values: tuple[str, Any]) -> bytes:
    return frames.frame(frames.METHOD, number, method.encode(**dict(values)))


class Session:
    decode = staticmethod(decode)

    def __init__(self, broker: Broker, stream: Stream) -> None:
        self.broker = broker
        self.stream = stream
        self.frame_max = FRAME_MAX
        self.is_over = False
        self.is_open = False
        self.has_published = False
        self.name = ""
        self._buffer = bytearray()
        self._is_greeted = False
        self._channels: dict[int, Channel] = {}
        self._closing: set[int] = set()
        self._is_closing = False
        self._heartbeat = 0.0
        self._heard = self._said = broker.now
        self._timer: asyncio.TimerHandle | None = None

    # The stream

    def received(self, data: bytes) -> None:
        self._heard = self.broker.now
        self._buffer += data
        if not self._is_greeted:
            if len(self._buffer) < len(frames.PROTOCOL_HEADER):
                return
            del self._buffer[: len(frames.PROTOCOL_HEADER)]
            self._is_greeted = True
            self._greet()
        arrived, at = bytes(self._buffer), 0
        while not self.is_over and len(arrived) - at >= frames.OVERHEAD:
            kind, number, size = frames.PREFIX.unpack_from(arrived, at)
            after = at + size + frames.OVERHEAD
            if len(arrived) < after:
                break
            assert arrived[after - 1] == frames.END, "the agent writes broken frames"
            payload, at = arrived[at + 7 : after - 1], after
            self._frame(kind, number, payload)
        del self._buffer[:at]

    def lost(self) -> None:
        self._end()

    def write(self, data: bytes) -> None:
        if not self.is_over:
            self._said = self.broker.now
            self.stream.down.send(data)

    def _end(self) -> None:
        if self.is_over:
            return
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        for channel in tuple(self._channels.values()):
            channel.end()
        self.broker.left(self)

    def drop(self) -> None:
        """Ends without a word."""
        self._end()
        self.stream.close_from_server()

    # Frames

    def _frame(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.HEARTBEAT:
            return
        if number == 0:
            self._control(decode(payload))
            return
        if self._is_closing:
            return
        if number in self._closing:
            if kind == frames.METHOD and decode(payload).method in {
                methods.CHANNEL_CLOSE_OK,
                methods.CHANNEL_CLOSE,
            }:
                if decode(payload).method is methods.CHANNEL_CLOSE:
                    self.say_on(number, methods.CHANNEL_CLOSE_OK)
                else:
                    self._closing.discard(number)
            return
        channel = self._channels.get(number)
        if channel is None:
            is_open = kind == frames.METHOD and decode(payload).method is methods.CHANNEL_OPEN
            assert is_open, f"the agent uses channel {number}, which isn't open"
            channel = self._channels[number] = Channel(self, number)
        try:
            channel.received(kind, payload)
        except Refused as refused:
            self._refuse(channel, refused, payload)

    def _refuse(self, channel: Channel, refused: Refused, payload: bytes) -> None:
        ids = tuple(payload[:4]) if len(payload) >= 4 else (0, 0, 0, 0)
        values = {"code": refused.code, "text": str(refused), "class_id": ids[1], "method_id": ids[3]}
        if refused.ends_connection:
            self._is_closing = True
            for each in tuple(self._channels.values()):
                each.end()
            self.say_on(0, methods.CONNECTION_CLOSE, **values)
            return
        channel.end()
        self._closing.add(channel.number)
        self.forget(channel.number)
        self.say_on(channel.number, methods.CHANNEL_CLOSE, **values)

    def forget(self, number: int) -> None:
        self._channels.pop(number, None)

    def say_on(self, number: int, method: Method, **values: Any) -> None:
        self.write(encoded(number, method, *values.items()))

    # The connection

    def _greet(self) -> None:
        able = fields.table(tuple((name, fields.boolean(True)) for name in CAPABILITIES))
        properties = (
            ("capabilities", able),
            ("cluster_name", fields.text(self.broker.cluster)),
            ("product", fields.text("RabbitMQ")),
            ("version", fields.text(self.broker.version)),
        )
        self.say_on(
            0, methods.CONNECTION_START, major=0, minor=9, properties=properties, mechanisms="PLAIN", locales="en_US"
        )

    def _control(self, call: Call) -> None:
        match call.method:
            case methods.CONNECTION_START_OK:
                found = fields.get(call["properties"], "connection_name")
                self.name = "" if found is None else found.value
                self.say_on(0, methods.CONNECTION_TUNE, channel_max=CHANNEL_MAX, frame_max=FRAME_MAX, heartbeat=60)
            case methods.CONNECTION_TUNE_OK:
                self._heartbeat = call["heartbeat"]
                self.frame_max = call["frame_max"]
                if self._heartbeat:
                    self._beat()
            case methods.CONNECTION_OPEN if not self.broker.has_access:
                refused = "NOT_ALLOWED - access to vhost '/' refused for user 'guest'"
                self.say_on(0, methods.CONNECTION_CLOSE, code=NOT_ALLOWED, text=refused)
            case methods.CONNECTION_OPEN:
                self.is_open = True
                self.say_on(0, methods.CONNECTION_OPEN_OK)
                if self.broker.alarm:
                    self.say_on(0, methods.CONNECTION_BLOCKED, reason=self.broker.alarm)
            case methods.CONNECTION_CLOSE:
                self.say_on(0, methods.CONNECTION_CLOSE_OK)
                self.drop()
            case methods.CONNECTION_CLOSE_OK:
                self.drop()
            case _:
                raise AssertionError(f"the model has no {call.method.name}")

    def _beat(self) -> None:
        now = self.broker.now
        if now - self._heard > 2 * self._heartbeat and not self.stream.up.is_held:
            self.drop()
            return
        if now - self._said >= self._heartbeat / 2:
            self.write(frames.HEARTBEAT_FRAME)
        self._timer = self.broker.network.later(now + self._heartbeat / 2, self._beat)

    # Alarms

    def publishes(self) -> None:
        """While there is an alarm, nothing more is read of who publishes."""
        self.has_published = True
        if self.broker.alarm:
            self.stream.up.is_held = True

    def show_alarm(self) -> None:
        if not self.is_open:
            return
        if self.broker.alarm:
            self.say_on(0, methods.CONNECTION_BLOCKED, reason=self.broker.alarm)
            self.stream.up.is_held = self.has_published
        else:
            self.say_on(0, methods.CONNECTION_UNBLOCKED)
            self.stream.up.is_held = False
            self._heard = self.broker.now
            self.stream.up.go_on()
