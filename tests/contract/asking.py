"""How the contract's questions are asked, and how its tables write answers.

An answer is a line of text: "ok", with what a broker counts, or a refusal as the agent reads it: "404 NOT_FOUND - …"
for one that closes the channel, "closed: 541 INTERNAL_ERROR" for one that closes the connection. `V` stands for the
name of the vhost and `U` for that of the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from agent.amqp.connect import Connection, connect
from agent.amqp.rpc import attempt
from agent.amqp.wire import methods
from agent.amqp.wire.channel import Channel, ChannelClosedError, Message
from agent.amqp.wire.ends import ConnectionClosedError
from agent.amqp.wire.methods import Call, Method
from agent.amqp.wire.properties import HEADERS, Properties
from agent.amqp.wire.tables import encode_table
from agent.core import fields
from agent.core.addresses.uri import parse
from agent.core.fields import Table
from agent.errors import BrokerError
from tests.lab.node import Node
from tests.lab.waiting import DEADLINE, eventually_async

OK: Final = "ok"

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Release:
    """A broker of it, and a vhost there that is the contract's own."""

    node: Node
    version: str
    vhost: str

    def elsewhere(self, vhost: str) -> Release:
        return replace(self, vhost=vhost)

    def says(self, answers: Mapping[str, Answer]) -> Answer:
        """Of a table's answers, by the first release that gives them in ascending order, this release's."""
        known = [answer for first, answer in answers.items() if numbers(first) <= numbers(self.version)]
        assert known, f"the contract begins with {next(iter(answers))}, and this is {self.version}"
        return known[-1]


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


class Asking:
    """Asks as one user. What an answer closes is opened again for the next question."""

    def __init__(self, release: Release, *, user: str = "guest", password: str = "guest", query: str = "") -> None:
        self._release = release
        self._user = user
        self._uri = f"{release.node.uri(release.vhost, user, password)}{query}"
        self._opened: list[Connection] = []

    async def connection(self) -> Connection:
        if not self._opened or self._opened[-1].is_closed:
            self._opened.append(await self.another())
        return self._opened[-1]

    async def another(self) -> Connection:
        """A connection that no other question is asked on."""
        opened = await connect(parse(self._uri), where="release", name="contract", within=DEADLINE)
        self._opened.insert(0, opened)
        return opened

    async def line(self, *, confirms: bool = False) -> Line:
        channel = await (await self.connection()).channel()
        if confirms:
            await channel.ask(methods.CONFIRM_SELECT)
        return Line(channel, self.read)

    async def __call__(self, method: Method, **values: Any) -> str:
        """On a channel of its own."""
        try:
            found = await attempt(await self.connection(), method, **values)
        except BrokerError as error:
            return self.read(error)
        return self.read(found) if isinstance(found, ChannelClosedError) else told(found)

    async def queue(self, name: str, arguments: Mapping[str, Any] | None = None, **values: Any) -> str:
        """Declares it, durable."""
        table = fields.table_from_json(dict(arguments or {}))
        return await self(methods.QUEUE_DECLARE, queue=name, arguments=table, **{"durable": True, **values})

    async def exchange(self, name: str, kind: str, arguments: Mapping[str, Any] | None = None, **values: Any) -> str:
        """Declares it, durable."""
        table = fields.table_from_json(dict(arguments or {}))
        values = {"durable": True, **values}
        return await self(methods.EXCHANGE_DECLARE, exchange=name, type=kind, arguments=table, **values)

    async def bind(self, source: str, queue: str, key: str = "", arguments: Table = ()) -> str:
        return await self(methods.QUEUE_BIND, queue=queue, exchange=source, routing_key=key, arguments=arguments)

    async def counted(self, queue: str) -> str:
        """What a passive declare counts. Of a quorum queue that is busy it may be nothing: ask until it is right."""
        return await self(methods.QUEUE_DECLARE, queue=queue, passive=True)

    async def publish(self, exchange: str, key: str, properties: bytes = b"\0\0", body: bytes = b"m") -> str:
        """With confirm and `mandatory`: "ack", "nack", "returned 312 NO_ROUTE, ack", or what it closes."""
        line = await self.line(confirms=True)
        return await line.publish(exchange, key, properties, body)

    async def all_of(self, queue: str) -> list[Message]:
        """What is in a queue, taken out of it."""
        line = await self.line()
        while await line.get(queue, no_ack=True):
            pass
        await line.channel.close()
        return line.messages

    async def bodies(self, queue: str) -> list[str]:
        return [message.body.decode() for message in await self.all_of(queue)]

    def read(self, error: BrokerError) -> str:
        """A refusal, as tables write it."""
        closed = error if isinstance(error, ChannelClosedError | ConnectionClosedError) else error.__cause__
        if not isinstance(closed, ChannelClosedError | ConnectionClosedError):
            return str(error)
        scope = "closed: " if isinstance(closed, ConnectionClosedError) else ""
        text = str(closed).replace(f"'{self._release.vhost}'", "'V'").replace(f"'{self._user}'", "'U'")
        return f"{scope}{closed.code} {text}"

    async def close(self) -> None:
        for connection in self._opened:
            await connection.close()


class Line:
    """One channel, and what came on it by itself."""

    def __init__(self, channel: Channel, read: Callable[[BrokerError], str]) -> None:
        self.channel = channel
        self.messages: list[Message] = []
        self.cancelled: list[str] = []
        self._confirms: list[str] = []
        self._read = read
        channel.on_message = self.messages.append
        channel.on_cancel = self.cancelled.append
        channel.on_confirm = lambda call: self._confirms.append(call.method.name.removeprefix("basic."))

    @property
    def end(self) -> str:
        """Why it was closed; empty while it is open."""
        return self._read(self.channel.closed.result()) if self.channel.closed.done() else ""

    @property
    def bodies(self) -> list[str]:
        return [message.body.decode() for message in self.messages]

    async def until(self, condition: Callable[[], object], what: str) -> None:
        async def asked() -> object:
            return condition()

        await eventually_async(asked, what=what)

    async def publish(self, exchange: str, key: str, properties: bytes = b"\0\0", body: bytes = b"m") -> str:
        returned, confirmed = len(self.messages), len(self._confirms)
        self.channel.publish(exchange, key, properties, body, mandatory=True)
        await self.until(lambda: self._confirms[confirmed:] or self.end, "it is confirmed or closed")
        back = [f"returned {each.call['code']} {each.call['text']}" for each in self.messages[returned:]]
        return self.end or ", ".join([*back, *self._confirms[confirmed:]])

    async def get(self, queue: str, *, no_ack: bool = False) -> bool:
        """Whether there was a message, which is the last of `messages` then."""
        before = len(self.messages)
        got = await self.channel.ask(methods.BASIC_GET, queue=queue, no_ack=no_ack)
        if got.method is methods.BASIC_GET_EMPTY:
            return False
        await self.until(lambda: len(self.messages) > before, "its content is here")
        return True

    async def consume(self, queue: str, tag: str, arguments: Mapping[str, Any] | None = None, **values: Any) -> str:
        table = fields.table_from_json(dict(arguments or {}))
        values |= {"queue": queue, "consumer_tag": tag, "arguments": table}
        try:
            await self.channel.ask(methods.BASIC_CONSUME, **values)
        except BrokerError as error:
            return self._read(error)
        return OK

    def give_back(self, *, last: Message | None = None) -> None:
        """By basic.nack, one message or all."""
        tag = 0 if last is None else last.call["delivery_tag"]
        self.channel.send(methods.BASIC_NACK, delivery_tag=tag, multiple=last is None, requeue=True)


def told(call: Call) -> str:
    counts = [f"{call[name]} {name}" for name in ("messages", "consumers") if name in call.values]
    return ", ".join([OK, *counts])


def with_headers(headers: Table) -> bytes:
    return Properties(HEADERS, ((HEADERS, encode_table(headers)),)).write()


def headers_of(message: Message) -> dict[str, Any]:
    return fields.table_to_json(message.properties.headers)
