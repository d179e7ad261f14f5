"""Sequences of commands to a broker, and what came of each: played to a real broker and to the model alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from agent.amqp.connect import Connection
from agent.amqp.wire import methods
from agent.amqp.wire.channel import Channel, ChannelClosedError, Message
from agent.core import fields
from agent.core.addresses.uri import HttpUrl
from agent.errors import BrokerError
from tests.simulation.reports import Reports

Command = tuple[str, dict[str, Any]]
Opener = Callable[[], Awaitable[Connection]]

CONNECTIONS: Final = 2
QUEUES: Final = ("plain", "single", "private", "passing")
EXCHANGES: Final = ("direct", "topic", "fanout", "going")
KEYS: Final = ("a", "a.b", "#", "*.b", "")
MOST_LOOKS: Final = 500  # for a confirm, which may wait for a disk
LOOK: Final = 0.01
_PERSISTENT: Final = b"\x10\x00\x02"


def generate(chance: Random, length: int) -> list[Command]:
    return [_command(chance, number) for number in range(length)]


def _command(chance: Random, number: int) -> Command:
    queue, exchange, key = chance.choice(QUEUES), chance.choice(EXCHANGES), chance.choice(KEYS)
    found: list[tuple[int, Command]] = [
        (5, ("declare queue", {"queue": queue, "passive": chance.random() < 0.3, "other": chance.random() < 0.1})),
        (
            4,
            (
                "declare exchange",
                {"exchange": exchange, "passive": chance.random() < 0.3, "other": chance.random() < 0.1},
            ),
        ),
        (4, ("bind", {"queue": queue, "exchange": exchange, "key": key})),
        (2, ("bind exchange", {"destination": chance.choice(EXCHANGES), "source": exchange, "key": key})),
        (1, ("unbind exchange", {"destination": chance.choice(EXCHANGES), "source": exchange, "key": key})),
        (5, ("publish", {"exchange": exchange, "key": key, "mandatory": chance.random() < 0.5, "body": number})),
        (5, ("publish", {"exchange": "", "key": queue, "mandatory": chance.random() < 0.5, "body": number})),
        (
            4,
            (
                "consume",
                {
                    "queue": queue,
                    "exclusive": chance.random() < 0.2,
                    "prefetch": chance.choice((0, 1, 2)),
                    "priority": chance.choice((-1, 0, 1)),
                },
            ),
        ),
        (2, ("cancel", {"which": chance.random()})),
        (3, ("ack", {"which": chance.random(), "multiple": chance.random() < 0.5})),
        (3, ("nack", {"which": chance.random(), "multiple": chance.random() < 0.5, "requeue": chance.random() < 0.7})),
        (1, ("ack unknown", {})),
        (2, ("get", {"queue": queue, "no_ack": chance.random() < 0.5})),
        (1, ("delete queue", {"queue": queue, "unused": chance.random() < 0.4, "empty": chance.random() < 0.4})),
        (1, ("delete exchange", {"exchange": exchange, "unused": chance.random() < 0.5})),
        (1, ("unknown type", {})),
        (2, ("close channel", {})),
        (1, ("close connection", {})),
    ]
    _, (name, values) = chance.choices(found, [weight for weight, _ in found])[0]
    return name, {**values, "on": chance.randrange(CONNECTIONS)}


@dataclass
class _Client:
    connection: Connection
    channel: Channel
    unacked: list[int] = field(default_factory=list)
    consumers: dict[str, str] = field(default_factory=dict)  # tag -> queue
    confirms: list[str] = field(default_factory=list)
    deliveries: list[str] = field(default_factory=list)


class Player:
    """`rest` lets what was delivered arrive. `prefix` makes names that nobody else has."""

    def __init__(self, opener: Opener, url: HttpUrl, prefix: str, rest: Callable[[], Awaitable[None]]) -> None:
        self._opener = opener
        self._reports = Reports(opener, url, prefix)
        self._priorities: dict[str, int] = {}
        self._prefix = prefix
        self._rest = rest
        self._clients: list[_Client] = []
        self._tags = 0

    async def play(self, commands: list[Command]) -> list[str]:
        """What came of each command."""
        self._clients = [await self._client() for _ in range(CONNECTIONS)]
        await self._reports.begin()
        found = []
        for name, values in commands:
            outcome = await self._do(name, values)
            await self._rest()
            found.append(f"{name} {values}: {outcome}; {self._arrived()}; {self._reports.heard()}")
            await self._restore()
        found.append(f"listed: {await self._reports.listed(sum(len(client.consumers) for client in self._clients))}")
        await self._reports.end()
        await self._clean_up()
        return found

    async def _client(self) -> _Client:
        connection = await self._opener()
        client = _Client(connection, connection.wire.begin_channel())
        await self._open(client)
        return client

    async def _open(self, client: _Client) -> None:
        channel = client.channel
        await channel.opened
        await channel.ask(methods.CONFIRM_SELECT)
        client.unacked.clear()
        client.consumers.clear()

        def message(found: Message) -> None:
            if found.call.method is methods.BASIC_RETURN:
                client.deliveries.append(f"returned {found.body!r} {found.call['code']}")
            elif found.call.method is methods.BASIC_DELIVER:
                client.unacked.append(found.call["delivery_tag"])
                client.deliveries.append(f"{found.body!r} again={found.call['redelivered']}")

        channel.on_message = message
        channel.on_confirm = lambda call: client.confirms.append(call.method.name)
        channel.on_cancel = lambda tag: client.deliveries.append(f"cancelled {client.consumers.pop(tag, None)}")

    def _arrived(self) -> str:
        found = [sorted(client.confirms) + client.deliveries for client in self._clients]
        for client in self._clients:
            client.confirms.clear()
            client.deliveries.clear()
        ends = [_ended(client) for client in self._clients]
        return f"{found} {ends}"

    async def _restore(self) -> None:
        """What was closed is opened again, so that the rest of the sequence means something."""
        for number, client in enumerate(self._clients):
            if client.connection.is_closed:
                self._clients[number] = await self._client()
            elif not client.channel.is_usable:
                client.channel = client.connection.wire.begin_channel()
                await self._open(client)

    def _name(self, name: str) -> str:
        return f"{self._prefix}{name}"

    async def _do(self, name: str, values: dict[str, Any]) -> str:
        client = self._clients[values["on"]]
        try:
            async with asyncio.timeout(10):
                outcome: str = await getattr(self, "_" + name.replace(" ", "_"))(client, values)
                return outcome
        except ChannelClosedError as error:
            return f"channel closed {error.code}"
        except BrokerError as error:
            return f"connection closed {getattr(error.__cause__, 'code', '')}"

    async def _ask(self, client: _Client, name: str, **values: Any) -> str:
        call = await client.channel.ask(getattr(methods, name), **values)
        return f"{call.method.name} {[call.values.get(each) for each in ('messages', 'consumers')]}"

    async def _declare_queue(self, client: _Client, values: dict[str, Any]) -> str:
        queue = values["queue"]
        arguments: fields.Table = (("x-single-active-consumer", fields.boolean(True)),) if queue == "single" else ()
        if values["other"]:
            arguments = (*arguments, ("x-max-length", fields.long(3)))
        flags = {"exclusive": queue == "private", "auto_delete": queue == "passing", "durable": queue != "private"}
        name = self._name(queue)
        return await self._ask(
            client, "QUEUE_DECLARE", queue=name, passive=values["passive"], arguments=arguments, **flags
        )

    async def _declare_exchange(self, client: _Client, values: dict[str, Any]) -> str:
        kind = values["exchange"] if values["exchange"] != "going" else "direct"
        flags = {"durable": not values["other"], "auto_delete": values["exchange"] == "going"}
        name = self._name(values["exchange"])
        return await self._ask(client, "EXCHANGE_DECLARE", exchange=name, type=kind, passive=values["passive"], **flags)

    async def _unknown_type(self, client: _Client, _: dict[str, Any]) -> str:
        return await self._ask(client, "EXCHANGE_DECLARE", exchange=self._name("none"), type="x-none", durable=True)

    async def _bind(self, client: _Client, values: dict[str, Any]) -> str:
        ends = {"queue": self._name(values["queue"]), "exchange": self._name(values["exchange"])}
        return await self._ask(client, "QUEUE_BIND", **ends, routing_key=values["key"])

    def _ends(self, values: dict[str, Any]) -> dict[str, str]:
        return {
            "destination": self._name(values["destination"]),
            "source": self._name(values["source"]),
            "routing_key": values["key"],
        }

    async def _bind_exchange(self, client: _Client, values: dict[str, Any]) -> str:
        return await self._ask(client, "EXCHANGE_BIND", **self._ends(values))

    async def _unbind_exchange(self, client: _Client, values: dict[str, Any]) -> str:
        return await self._ask(client, "EXCHANGE_UNBIND", **self._ends(values))

    async def _publish(self, client: _Client, values: dict[str, Any]) -> str:
        exchange = self._name(values["exchange"]) if values["exchange"] else ""
        key = values["key"] if exchange else self._name(values["key"])
        body = b"%d" % values["body"]
        client.channel.publish(exchange, key, _PERSISTENT, body, mandatory=values["mandatory"])
        for _ in range(MOST_LOOKS):
            if client.confirms or not client.channel.is_usable:
                break
            await asyncio.sleep(LOOK)
        return "sent"

    async def _consume(self, client: _Client, values: dict[str, Any]) -> str:
        queue, priority = values["queue"], values["priority"] if values["queue"] != "single" else 0
        taken = [self._priorities[tag] for other in self._clients for tag, of in other.consumers.items() if of == queue]
        if priority in taken and queue != "single" and not values["exclusive"]:
            return "left out: who gets what is left to the broker"
        self._tags += 1
        tag = f"tag {self._tags}"
        await self._ask(client, "BASIC_QOS", prefetch_count=values["prefetch"])
        client.consumers[tag], self._priorities[tag] = queue, priority
        arguments = (("x-priority", fields.long(priority)),) if priority else ()
        options = {"consumer_tag": tag, "exclusive": values["exclusive"], "arguments": arguments}
        try:
            return await self._ask(client, "BASIC_CONSUME", queue=self._name(queue), **options)
        except BrokerError:
            client.consumers.pop(tag, None)
            raise

    async def _cancel(self, client: _Client, values: dict[str, Any]) -> str:
        if not client.consumers:
            return "left out: no consumer"
        tag = _chosen(sorted(client.consumers), values["which"])
        del client.consumers[tag]
        return await self._ask(client, "BASIC_CANCEL", consumer_tag=tag)

    def _settle(self, client: _Client, values: dict[str, Any]) -> int | None:
        if not client.unacked:
            return None
        tag: int = _chosen(sorted(client.unacked), values["which"])
        gone = [each for each in client.unacked if each == tag or (values["multiple"] and each < tag)]
        client.unacked = [each for each in client.unacked if each not in gone]
        return tag

    async def _ack(self, client: _Client, values: dict[str, Any]) -> str:
        tag = self._settle(client, values)
        if tag is None:
            return "left out: nothing to settle"
        client.channel.send(methods.BASIC_ACK, delivery_tag=tag, multiple=values["multiple"])
        return await self._ask(client, "BASIC_QOS")  # when it is settled

    async def _nack(self, client: _Client, values: dict[str, Any]) -> str:
        tag = self._settle(client, values)
        if tag is None:
            return "left out: nothing to settle"
        client.channel.send(
            methods.BASIC_NACK, delivery_tag=tag, multiple=values["multiple"], requeue=values["requeue"]
        )
        return await self._ask(client, "BASIC_QOS")  # when it is settled

    async def _ack_unknown(self, client: _Client, _: dict[str, Any]) -> str:
        client.channel.send(methods.BASIC_ACK, delivery_tag=999)
        return await self._ask(client, "BASIC_QOS")  # when it is settled

    async def _get(self, client: _Client, values: dict[str, Any]) -> str:
        if any(values["queue"] in each.consumers.values() for each in self._clients):
            return "left out: consumers race for it"
        call = client.channel.ask(methods.BASIC_GET, queue=self._name(values["queue"]), no_ack=values["no_ack"])
        answer = await call
        if answer.method is methods.BASIC_GET_OK and not values["no_ack"]:
            client.unacked.append(answer["delivery_tag"])
        return f"{answer.method.name} {answer.values.get('messages')} {answer.values.get('redelivered')}"

    async def _delete_queue(self, client: _Client, values: dict[str, Any]) -> str:
        conditions = {"if_unused": values["unused"], "if_empty": values["empty"]}
        return await self._ask(client, "QUEUE_DELETE", queue=self._name(values["queue"]), **conditions)

    async def _delete_exchange(self, client: _Client, values: dict[str, Any]) -> str:
        name = self._name(values["exchange"])
        return await self._ask(client, "EXCHANGE_DELETE", exchange=name, if_unused=values["unused"])

    async def _close_channel(self, client: _Client, _: dict[str, Any]) -> str:
        await client.channel.close()
        return "closed"

    async def _close_connection(self, client: _Client, _: dict[str, Any]) -> str:
        await client.connection.close()
        return "closed"

    async def _clean_up(self) -> None:
        for client in self._clients:
            await client.connection.close()
        client = await self._client()
        for queue in QUEUES:
            await self._ask(client, "QUEUE_DELETE", queue=self._name(queue))
        for exchange in EXCHANGES:
            await self._ask(client, "EXCHANGE_DELETE", exchange=self._name(exchange))
        await client.connection.close()


def _chosen(found: list[Any], which: float) -> Any:
    return found[int(which * len(found))]


def _ended(client: _Client) -> str:
    if client.connection.is_closed:
        return "connection closed"
    if client.channel.is_usable:
        return "open"
    error = client.channel.closed.result()
    return f"channel closed {getattr(error, 'code', '')}"
