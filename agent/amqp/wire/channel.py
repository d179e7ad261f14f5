"""One channel: questions in flight side by side, answers in their order, and what the broker says by itself."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from agent.amqp.wire import frames, methods
from agent.amqp.wire.methods import Call, Method
from agent.amqp.wire.properties import Properties
from agent.amqp.wire.tables import CodecError
from agent.errors import BrokerError

REPLY_SUCCESS: Final = 200
CLOSE_PATIENCE: Final = 5.0
MAX_BODY: Final = 512 * 1024 * 1024  # no broker takes more


class ChannelClosedError(BrokerError):
    """The broker closed a channel; `code` is AMQP's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Message:
    """A content that wasn't spliced: how it came, its properties, its body."""

    call: Call
    properties: Properties
    body: bytes


class Writer(Protocol):
    """What a channel needs of its connection."""

    frame_max: int

    def write(self, data: bytes) -> None: ...

    def write_soon(self, data: bytes) -> None: ...

    def forget(self, number: int) -> None: ...

    def abandon(self, number: int) -> None: ...


class Channel:
    """Many questions may be asked before the first is answered: a broker looks at them in their order.

    An error answers the oldest question and closes the channel; those behind it were never looked at.
    """

    def __init__(self, writer: Writer, number: int) -> None:
        self.number = number
        self.on_message: Callable[[Message], None] | None = None
        self.on_cancel: Callable[[str], None] | None = None
        self.on_settled: Callable[[Call], None] | None = None
        self.closed: asyncio.Future[BrokerError] = asyncio.get_running_loop().create_future()
        # The broker has the beginning of a message. Anything but its rest would cost the whole connection, so where
        # there is no rest the channel is left as it is, for good: that publishes nothing and disturbs nobody.
        self.is_midway = False
        self._is_closing = False
        self._writer = writer
        self._asked: deque[tuple[Method, asyncio.Future[Call]]] = deque()
        self._content: Call | None = None
        self._properties = Properties(0, ())
        self._body = bytearray()
        self._missing = 0
        # More may be asked before this is answered: the broker keeps the order.
        self.opened = self.ask(methods.CHANNEL_OPEN, methods.CHANNEL_OPEN_OK)

    @property
    def is_usable(self) -> bool:
        """Whether a method may be sent: one on a channel that is closed costs the whole connection."""
        return not self._is_closing and not self.closed.done()

    def send(self, method: Method, **values: Any) -> None:
        """A method that nothing answers."""
        self._say(self._writer.write, method, values)

    def send_encoded(self, payloads: Iterable[bytes]) -> None:
        """Methods that nothing answers, encoded by `Method.encode` before: for very many, sent again and again."""
        if not self.is_usable:
            raise self.closed.result() if self.closed.done() else ChannelClosedError(REPLY_SUCCESS, "it is closing")
        self._writer.write_soon(b"".join(frames.frame(frames.METHOD, self.number, payload) for payload in payloads))

    def _say(self, write: Callable[[bytes], None], method: Method, values: dict[str, Any]) -> None:
        if self.is_midway:
            self._abandon(ChannelClosedError(REPLY_SUCCESS, "left in the middle of a message"))
        if self.closed.done():
            raise self.closed.result()
        self._is_closing = self._is_closing or method is methods.CHANNEL_CLOSE
        write(frames.frame(frames.METHOD, self.number, method.encode(**values)))

    def ask(self, method: Method, answer: Method, **values: Any) -> asyncio.Future[Call]:
        """Asks at once; await the answer whenever it suits."""
        return self._ask(self._writer.write, method, answer, values)

    def ask_soon(self, method: Method, answer: Method, **values: Any) -> asyncio.Future[Call]:
        """Asks with all else that this turn of the loop brings: for very many questions."""
        return self._ask(self._writer.write_soon, method, answer, values)

    def _ask(
        self, write: Callable[[bytes], None], method: Method, answer: Method, values: dict[str, Any]
    ) -> asyncio.Future[Call]:
        future: asyncio.Future[Call] = asyncio.get_running_loop().create_future()
        if self.is_midway:
            self._asked.append((answer, future))
            self._abandon(ChannelClosedError(REPLY_SUCCESS, "left in the middle of a message"))
            return future
        self._say(write, method, values)
        self._asked.append((answer, future))
        return future

    def publish(
        self, exchange: str, routing_key: str, properties: bytes, body: bytes, *, mandatory: bool = False
    ) -> None:
        self.send(methods.BASIC_PUBLISH, exchange=exchange, routing_key=routing_key, mandatory=mandatory)
        self._writer.write(frames.content(self.number, properties, body, self._writer.frame_max))

    async def close(self) -> None:
        if self.closed.done():
            return
        closing = {"code": REPLY_SUCCESS, "text": "done", "class_id": 0, "method_id": 0}
        answer = self.ask(methods.CHANNEL_CLOSE, methods.CHANNEL_CLOSE_OK, **closing)
        try:
            async with asyncio.timeout(CLOSE_PATIENCE):
                await answer
        except ChannelClosedError:
            return
        except TimeoutError:  # of what comes late, nothing may reach another channel of this number
            self._abandon(ChannelClosedError(REPLY_SUCCESS, "closed by the agent, and nothing was answered"))
        self.end(ChannelClosedError(REPLY_SUCCESS, "closed by the agent"))

    def leave(self) -> None:
        """Closes without waiting for it; the number stays taken until the broker has answered."""
        if not self.is_usable:
            return
        closing = {"code": REPLY_SUCCESS, "text": "done", "class_id": 0, "method_id": 0}
        answer = self.ask(methods.CHANNEL_CLOSE, methods.CHANNEL_CLOSE_OK, **closing)
        answer.add_done_callback(lambda _: self.end(ChannelClosedError(REPLY_SUCCESS, "closed by the agent")))

    def received(self, kind: int, payload: bytes) -> None:
        """One frame of this channel."""
        if kind == frames.METHOD:
            self._called(methods.decode(payload))
        elif self._content is None:
            raise CodecError("content without a method before it")
        elif kind == frames.HEADER:
            self._begin_body(payload)
        else:
            self._body += payload
            self._missing -= len(payload)
            self._end_body()

    def end(self, error: BrokerError) -> None:
        """Nothing more comes; the oldest question is told why, the others that the channel is gone."""
        if self.closed.done():
            return
        self._writer.forget(self.number)
        self._end(error)

    def _abandon(self, error: BrokerError) -> None:
        """Ends without a word; the number stays taken."""
        if self.closed.done():
            return
        self.is_midway = False
        self._writer.abandon(self.number)
        self._end(error)

    def _end(self, error: BrokerError) -> None:
        self.closed.set_result(error)
        while self._asked:
            _, future = self._asked.popleft()
            if not future.done():
                future.set_exception(error)
                future.exception()  # asked side by side, some answers may never be awaited

    def _called(self, call: Call) -> None:
        match call.method:
            case methods.CHANNEL_CLOSE if self.is_midway:
                self._abandon(ChannelClosedError(call["code"], call["text"]))
            case methods.CHANNEL_CLOSE:
                self._writer.write(frames.frame(frames.METHOD, self.number, methods.CHANNEL_CLOSE_OK.encode()))
                self.end(ChannelClosedError(call["code"], call["text"]))
            case methods.CHANNEL_FLOW:
                self.send(methods.CHANNEL_FLOW_OK, active=call["active"])
            case methods.BASIC_ACK | methods.BASIC_NACK:
                if self.on_settled is not None:
                    self.on_settled(call)
            case methods.BASIC_CANCEL:
                if self.on_cancel is not None:
                    self.on_cancel(call["consumer_tag"])
            case method if method.content:
                self._content = call
            case _:
                self._answered(call)

    def _answered(self, call: Call) -> None:
        """Answers of one kind keep their order; a queue answers basic.consume by itself, later than the channel."""
        wanted = methods.BASIC_GET_OK if call.method is methods.BASIC_GET_EMPTY else call.method
        for question in self._asked:
            expected, future = question
            if expected is wanted:
                self._asked.remove(question)
                if not future.done():
                    future.set_result(call)
                return
        raise CodecError(f"{call.method.name} answers nothing that was asked")

    def _begin_body(self, payload: bytes) -> None:
        if len(payload) < frames.BASIC_HEADER.size:
            raise CodecError("a content header is cut off")
        _, _, self._missing = frames.BASIC_HEADER.unpack_from(payload)
        if self._missing > MAX_BODY:
            raise CodecError(f"a body of {self._missing} bytes")
        self._properties = Properties.read(payload[frames.BASIC_HEADER.size :])
        self._body.clear()
        self._end_body()

    def _end_body(self) -> None:
        if self._missing > 0:
            return
        if self._missing < 0 or self._content is None:
            raise CodecError("a body is longer than its header says")
        message = Message(self._content, self._properties, bytes(self._body))
        self._content = None
        if message.call.method is methods.BASIC_GET_OK:
            self._answered(message.call)
        if self.on_message is not None:
            self.on_message(message)
