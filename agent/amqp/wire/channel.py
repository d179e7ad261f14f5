"""One channel: concurrent requests, responses in their order, and unsolicited methods of the broker.

Why: docs/decisions/0019-request-deadlines.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from agent.amqp.wire import frames, methods
from agent.amqp.wire.ends import one_line
from agent.amqp.wire.methods import Call, Method
from agent.amqp.wire.properties import Properties
from agent.amqp.wire.refusal_texts import ACCESS_REFUSED, facts_of, refuses_topic, with_permission
from agent.amqp.wire.tables import CodecError
from agent.errors import BrokerError, PermanentError, TransientError

REPLY_SUCCESS: Final = 200
CLOSE_PATIENCE: Final = 5.0
MAX_BODY: Final = 512 * 1024 * 1024  # no broker takes more
# In a second: RabbitMQ sends no flow at all, others when a queue is full, and a cancel for each of our few consumers.
MOST_DEMANDS: Final = 10


class ChannelClosedError(BrokerError):
    """The broker closed a channel; `code` is AMQP's. `is_over_topic`: the user may not use that routing key."""

    def __init__(self, code: int, text: str, *, is_over_topic: bool = False, login: str = "", vhost: str = "") -> None:
        super().__init__(text, facts=facts_of(code, text, login=login, vhost=vhost))
        self.code = code
        self.is_over_topic = is_over_topic


class UnansweredError(TransientError):
    """A request got no response in time."""


class MethodTooLargeError(PermanentError):
    """A method that is larger than the agreed frame; sending it would close the whole connection."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message that wasn't spliced: its method, its properties, its body."""

    call: Call
    properties: Properties
    body: bytes


_NAMES: Final = ("queue", "exchange", "source", "consumer_tag")


@dataclass(frozen=True, slots=True, eq=False)
class PendingRequest:
    method: Method
    answer: Method
    values: Mapping[str, Any]
    future: asyncio.Future[Call]
    asked_at: float

    def __str__(self) -> str:
        """The method, and the name of its object."""
        name = next((self.values[each] for each in _NAMES if self.values.get(each)), None)
        return self.method.name if name is None else f"{self.method.name} {one_line(name)!r}"


class PendingRequests:
    """The requests without a response, in the order in which they were sent, and how long they have waited; times are
    the loop's."""

    __slots__ = ("_answered_at", "_loop", "_open")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: list[PendingRequest] = []  # an empty deque takes 0.7 KB, twice a link
        self._answered_at = 0.0

    def add(self, method: Method, values: Mapping[str, Any]) -> asyncio.Future[Call]:
        future: asyncio.Future[Call] = self._loop.create_future()
        answer = methods.ANSWERS[method.ids]
        self._open.append(PendingRequest(method, answer, values, future, self._loop.time()))
        return future

    def answer(self, call: Call) -> bool:
        """Give a response to the oldest request for it; return False if there is none. Responses of one kind keep their
        order; a queue itself answers basic.consume, later than the channel."""
        wanted = methods.BASIC_GET_OK if call.method is methods.BASIC_GET_EMPTY else call.method
        for question in self._open:
            if question.answer is wanted:
                self._open.remove(question)
                self._answered_at = self._loop.time()
                if not question.future.done():
                    question.future.set_result(call)
                return True
        return False

    def awaits(self, answer: Method) -> bool:
        return any(question.answer is answer for question in self._open)

    def values_of(self, ids: tuple[int, int]) -> Mapping[str, Any]:
        """The arguments of the oldest request for this method; empty if there is none."""
        return next((each.values for each in self._open if each.method.ids == ids), {})

    def overdue(self, *, patience: float, since: float) -> PendingRequest | None:
        """The oldest request, if no request was answered for `patience` seconds in which the broker could have
        answered, counted from `since` at the earliest; otherwise None. Each response restarts the time: thousands may
        be in flight to a broker that handles them one by one."""
        if not self._open:
            return None
        oldest = self._open[0]
        waited = self._loop.time() - max(oldest.asked_at, self._answered_at, since)
        return oldest if waited >= patience else None

    def end(self, error: BrokerError) -> None:
        """Give `error` to all requests: there will be no more responses."""
        ended, self._open = self._open, []
        for future in (question.future for question in ended):
            if not future.done():
                future.set_exception(error)
                future.exception()  # of concurrent requests, some responses may never be awaited


class Writer(Protocol):
    """The part of a connection that a channel uses."""

    frame_max: int

    @property
    def where(self) -> str: ...

    @property
    def account(self) -> tuple[str, str]: ...

    def write(self, data: bytes) -> None: ...

    def answer(self, data: bytes) -> None: ...

    def write_soon(self, data: bytes) -> None: ...

    def forget(self, number: int) -> None: ...

    def abandon(self, number: int) -> None: ...

    def redacted(self, text: str) -> str: ...


class Channel:
    """One channel of a connection. Many requests may be sent before the first response: a broker handles them in order.
    An error answers the oldest request and closes the channel; later ones were not handled.

    A reserved channel has a number, and the broker knows nothing of it until `open` is called."""

    __slots__ = (
        "_body", "_content", "_demands", "_demands_since", "_is_closing", "_loop", "_missing", "_properties",
        "_questions", "_writer", "closed", "is_midway", "is_reserved", "losses", "number", "on_cancel", "on_confirm",
        "on_message", "opened", "rejection", "unapplied",
    )  # fmt: skip

    def __init__(self, writer: Writer, number: int) -> None:
        self.number = number
        self.on_message: Callable[[Message], None] | None = None
        self.on_cancel: Callable[[str], None] | None = None
        self.losses: dict[str, int] | None = None  # where it counts messages that lose something by being converted
        self.unapplied: tuple[str, ...] = ()  # arguments of its consumer that the broker says it doesn't apply
        self.rejection = ""  # why the broker refused the message that it refused last; empty if it doesn't say
        self.on_confirm: Callable[[Call], None] | None = None  # of few publishes; those of links are diverted
        loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[BrokerError] = loop.create_future()
        # The broker has the beginning of a message. Anything but its rest would close the whole connection, so without
        # the rest the channel is abandoned: that publishes nothing and affects no other channel.
        self.is_midway = False
        self._is_closing = False
        self._writer = writer
        self._loop = loop
        self._questions = PendingRequests(loop)
        self._demands = 0
        self._demands_since = 0.0
        self._content: Call | None = None
        self._properties = Properties(0, ())
        self._body = bytearray()
        self._missing = 0
        self.is_reserved = True
        self.opened: asyncio.Future[Call] = loop.create_future()

    def open(self) -> None:
        """Ask the broker for the channel. More requests may follow before the response: the broker keeps the order."""
        self.is_reserved = False
        self.opened = self.ask(methods.CHANNEL_OPEN)

    def open_for_confirms(self) -> None:
        """Open the channel, with confirms, before what is published next. If the broker refuses, the channel ends."""
        self.is_reserved = False
        self.opened = self.ask_soon(methods.CHANNEL_OPEN)
        self.ask_soon(methods.CONFIRM_SELECT)

    @property
    def is_usable(self) -> bool:
        """True if a method may be sent: one on a closed channel would close the whole connection."""
        return not self._is_closing and not self.closed.done()

    def send(self, method: Method, **values: Any) -> None:
        """Send a method without a response."""
        self._say(self._writer.write, method, values)

    def send_encoded(self, payloads: Iterable[bytes]) -> None:
        """Send methods without a response that `Method.encode` encoded before: for very many that are sent
        repeatedly."""
        if not self.is_usable:
            raise self.closed.result() if self.closed.done() else ChannelClosedError(REPLY_SUCCESS, "it is closing")
        self._writer.write_soon(b"".join(frames.frame(frames.METHOD, self.number, payload) for payload in payloads))

    def _say(self, write: Callable[[bytes], None], method: Method, values: dict[str, Any]) -> None:
        if self.is_midway:
            self._abandon(ChannelClosedError(REPLY_SUCCESS, "left in the middle of a message"))
        if self.closed.done():
            raise self.closed.result()
        frame = frames.frame(frames.METHOD, self.number, method.encode(**values))
        if len(frame) > self._writer.frame_max:
            raise MethodTooLargeError(
                f"{method.name} takes {len(frame)} bytes, and the broker accepts frames of at most "
                f"{self._writer.frame_max}: use smaller arguments, or a larger frame_max there and in the URI",
                where=self._writer.where,
            )
        self._is_closing = self._is_closing or method is methods.CHANNEL_CLOSE
        write(frame)

    def ask(self, method: Method, **values: Any) -> asyncio.Future[Call]:
        """Send the request at once; the response can be awaited later."""
        return self._ask(self._writer.write, method, values)

    def ask_soon(self, method: Method, **values: Any) -> asyncio.Future[Call]:
        """Send the request with all other data of this turn of the loop: for very many requests."""
        return self._ask(self._writer.write_soon, method, values)

    def _ask(self, write: Callable[[bytes], None], method: Method, values: dict[str, Any]) -> asyncio.Future[Call]:
        if self.is_midway:
            future = self._questions.add(method, values)
            self._abandon(ChannelClosedError(REPLY_SUCCESS, "left in the middle of a message"))
            return future
        self._say(write, method, values)
        return self._questions.add(method, values)

    def publish(
        self, exchange: str, routing_key: str, properties: bytes, body: bytes, *, mandatory: bool = False
    ) -> None:
        self.send(methods.BASIC_PUBLISH, exchange=exchange, routing_key=routing_key, mandatory=mandatory)
        self._writer.write(frames.content(self.number, properties, body, self._writer.frame_max))

    async def close(self) -> None:
        if self.is_reserved:
            self.end(ChannelClosedError(REPLY_SUCCESS, "closed by the agent"))
        if self.closed.done():
            return
        answer = self.ask(methods.CHANNEL_CLOSE, code=REPLY_SUCCESS, text="done")
        try:
            async with asyncio.timeout(CLOSE_PATIENCE):
                await answer
        except ChannelClosedError:
            return
        except TimeoutError:  # late frames must not reach another channel with this number
            self._abandon(ChannelClosedError(REPLY_SUCCESS, "closed by the agent before a response"))
        self.end(ChannelClosedError(REPLY_SUCCESS, "closed by the agent"))

    def leave(self) -> None:
        """Close without waiting; the number stays in use until the broker has responded."""
        if self.is_reserved:
            self.end(ChannelClosedError(REPLY_SUCCESS, "closed by the agent"))
        if not self.is_usable:
            return
        try:
            answer = self.ask(methods.CHANNEL_CLOSE, code=REPLY_SUCCESS, text="done")
        except BrokerError:
            return  # this very write found that the connection may not be used any more, and the channel ended with it
        answer.add_done_callback(lambda _: self.end(ChannelClosedError(REPLY_SUCCESS, "closed by the agent")))

    def received(self, kind: int, payload: bytes) -> None:
        """Handle one frame of this channel."""
        if kind == frames.METHOD:
            self._called(methods.decode(payload))
        elif self._content is None:
            raise CodecError("content without a method before it")
        elif kind == frames.HEADER:
            self._begin_body(payload)
        elif not payload:
            raise CodecError("a body frame without a body")
        else:
            self._body += payload
            self._missing -= len(payload)
            self._end_body()

    def look_at_questions(self, *, patience: float, since: float) -> None:
        """End the channel if a request has got no response for `patience` seconds, although the broker could have
        answered it since `since`. The number is given up: the response may still arrive, and must not be taken for that
        to another request."""
        question = self._questions.overdue(patience=patience, since=since)
        if question is None:
            return
        if not self._is_closing and not self.is_midway:
            self._say(self._writer.write, methods.CHANNEL_CLOSE, {"code": REPLY_SUCCESS, "text": "no answer"})
        self._abandon(UnansweredError(f"no answer to {question} within {patience:g} s", where=self._writer.where))

    def end(self, error: BrokerError) -> None:
        """End the channel; all requests without a response get `error`."""
        if self.closed.done():
            return
        self._writer.forget(self.number)
        self._end(error)

    def _abandon(self, error: BrokerError) -> None:
        """End the channel without notice to the broker; the number stays in use."""
        if self.closed.done():
            return
        self.is_midway = False
        self._writer.abandon(self.number)
        self._end(error)

    def _end(self, error: BrokerError) -> None:
        self.closed.set_result(error)
        self._questions.end(error)

    def _called(self, call: Call) -> None:
        match call.method:
            case methods.CHANNEL_CLOSE if self.is_midway:
                self._abandon(self._closing(call))
            case methods.CHANNEL_CLOSE:
                self._writer.answer(frames.frame(frames.METHOD, self.number, methods.CHANNEL_CLOSE_OK.encode()))
                self.end(self._closing(call))
            case methods.CHANNEL_FLOW:
                self._comply(call, methods.CHANNEL_FLOW_OK, active=call["active"])
            case methods.BASIC_ACK | methods.BASIC_NACK:
                if self.on_confirm is not None:
                    self.on_confirm(call)
            case methods.BASIC_CANCEL:
                self._cancelled(call)
            case method if method.content:
                if self.on_message is None and not self._questions.awaits(method):
                    raise CodecError(f"{method.name} without a consumer")
                self._content = call
            case _:
                self._answered(call)

    def _closing(self, call: Call) -> ChannelClosedError:
        text, is_over_topic = call["text"], False
        if call["code"] == ACCESS_REFUSED:
            ids = call["class_id"], call["method_id"]
            values = self._questions.values_of(ids)
            is_over_topic = refuses_topic(text, values)
            text = with_permission(text, ids, values)
        login, vhost = self._writer.account
        shown = one_line(self._writer.redacted(text))
        return ChannelClosedError(call["code"], shown, is_over_topic=is_over_topic, login=login, vhost=vhost)

    def _cancelled(self, call: Call) -> None:
        tag = call["consumer_tag"]
        if not call["nowait"]:  # RabbitMQ waits for no answer, but a broker may
            self._comply(call, methods.BASIC_CANCEL_OK, consumer_tag=tag)
        if self.on_cancel is not None:
            self.on_cancel(tag)

    def _comply(self, call: Call, answer: Method, **values: Any) -> None:
        """Send the answer that the broker asks for; raise CodecError if it asks too often."""
        now = self._loop.time()
        if now - self._demands_since >= 1:
            self._demands, self._demands_since = 0, now
        self._demands += 1
        if self._demands > MOST_DEMANDS:
            raise CodecError(f"over {MOST_DEMANDS} {call.method.name} in a second")
        if not self._is_closing and not self.is_midway:
            self._writer.answer(frames.frame(frames.METHOD, self.number, answer.encode(**values)))

    def _answered(self, call: Call) -> None:
        if not self._questions.answer(call):
            raise CodecError(f"{call.method.name} answers no request")

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
