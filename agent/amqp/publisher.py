"""Publishes one message after another, each with its confirm: for few messages that must not be lost."""

from __future__ import annotations

import asyncio
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.rpc import refused_while
from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import Channel, Message, UnansweredError
from agent.amqp.wire.methods import Call
from agent.errors import PermanentError, TransientError

CONFIRMED_WITHIN: Final = 10.0
SLOWEST: Final = 1024 * 1024  # bytes in a second: large messages have longer
_HEADER: Final = frames.OVERHEAD + 12  # bytes of a content header besides the properties


class NoQueueError(TransientError):
    """No queue takes a message."""


class Publisher:
    """Publishes messages on its own channel; `open` comes first. An error of one message may leave the channel open: if
    it `is_usable`, publish the next one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channel: Channel = connection.wire.begin_channel()
        self._channel.on_confirm = self._confirmed
        self._channel.on_message = self._returned
        self._outcome: asyncio.Future[bool] | None = None
        self._is_returned = False

    @property
    def is_usable(self) -> bool:
        return self._channel.is_usable

    @property
    def room_for_properties(self) -> int:
        """The number of bytes that a message's properties may take, with their flags."""
        return (self._connection.wire.frame_max or frames.LARGEST) - _HEADER

    async def open(self) -> None:
        with refused_while(self._connection, "asking for confirms"):
            await self._channel.ask(methods.CONFIRM_SELECT)

    async def publish(self, exchange: str, routing_key: str, properties: bytes, body: bytes) -> None:
        """Publish a message and return once the broker has confirmed that it is in a queue; raise BrokerError if it
        isn't."""
        where, doing = self._connection.where, f"publishing to {_place(exchange, routing_key)}"
        if len(properties) > self.room_for_properties:
            limit = self._connection.wire.frame_max
            raise PermanentError(f"its properties fit into no frame of {limit} bytes", where=where, doing=doing)
        outcome = self._outcome = asyncio.get_running_loop().create_future()
        self._is_returned = False
        self._channel.publish(exchange, routing_key, properties, body, mandatory=True)
        closed, patience = self._channel.closed, CONFIRMED_WITHIN + len(body) / SLOWEST
        done, _ = await asyncio.wait(
            (outcome, closed), timeout=patience, return_when=asyncio.FIRST_COMPLETED
        )  # fmt: skip
        self._outcome = None
        if closed in done and outcome not in done:
            raise TransientError(closed.result().what, where=where, doing=doing) from closed.result()
        if outcome not in done:
            self._channel.leave()  # a late confirm must not be taken for that of another message
            raise UnansweredError(f"no confirm within {patience:.0f} s", where=where, doing=doing)
        if not outcome.result():
            raise TransientError("refused by the broker (basic.nack)", where=where, doing=doing)
        if self._is_returned:
            raise NoQueueError("no queue takes it", where=where, doing=doing)

    def leave(self) -> None:
        self._channel.leave()

    def _confirmed(self, call: Call) -> None:
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(call.method is methods.BASIC_ACK)

    def _returned(self, _: Message) -> None:
        """Note that the message was returned: basic.return comes before the confirm."""
        self._is_returned = True


def _place(exchange: str, routing_key: str) -> str:
    return f"exchange {exchange!r} with key {routing_key!r}" if exchange else f"queue {routing_key!r}"
