"""What stands on a broker, asked with passive declares: they change nothing and work where statistics are off."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from aiormq.abc import AbstractChannel
from aiormq.exceptions import AMQPChannelError

from agent.amqp.connect import Connection
from agent.amqp.failures import ACCESS_REFUSED, NOT_FOUND, RESOURCE_LOCKED, reply

# aiormq asks one question of a channel at a time, so questions travel side by side on several.
_CHANNELS = 32


class Presence(StrEnum):
    EXISTS = "exists"
    MISSING = "missing"
    LOCKED = "locked"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class QueueFound:
    """`locked`: exclusive to another connection; `refused`: no permission. `detail` is the broker's own text."""

    presence: Presence
    messages: int = 0
    consumers: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ExchangeFound:
    presence: Presence
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """What was found, by name."""

    queues: Mapping[str, QueueFound]
    exchanges: Mapping[str, ExchangeFound]


async def probe(connection: Connection, *, queues: Iterable[str] = (), exchanges: Iterable[str] = ()) -> Standing:
    """Asks for all the names at once; raises only where the connection is lost."""
    asking = _Asking(connection, queues, exchanges)
    await asking.run()
    return Standing(asking.queues, asking.exchanges)


class _Asking:
    def __init__(self, connection: Connection, queues: Iterable[str], exchanges: Iterable[str]) -> None:
        self._connection = connection
        self._waiting = deque([*((True, name) for name in queues), *((False, name) for name in exchanges)])
        self.queues: dict[str, QueueFound] = {}
        self.exchanges: dict[str, ExchangeFound] = {}

    async def run(self) -> None:
        lanes = min(_CHANNELS, len(self._waiting), max(1, self._connection.channel_max // 2))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(lanes):
                    group.create_task(self._lane())
        except BaseExceptionGroup as failures:
            first = failures.exceptions[0]  # the others only say the same
            raise first from first.__cause__

    async def _lane(self) -> None:
        """Asks on a channel of its own, and takes a new one where an answer was no: that closes a channel."""
        channel: AbstractChannel | None = None
        try:
            while self._waiting:
                is_queue, name = self._waiting.popleft()
                channel = channel or await self._connection.channel()
                try:
                    async with self._connection.telling():
                        await self._ask(channel, is_queue, name)
                except AMQPChannelError as error:
                    self._note(is_queue, name, error)
                    channel = None
        finally:
            if channel is not None and not channel.is_closed:
                await channel.close()

    async def _ask(self, channel: AbstractChannel, is_queue: bool, name: str) -> None:
        if is_queue:
            answer = await channel.queue_declare(name, passive=True)
            messages, consumers = answer.message_count or 0, answer.consumer_count or 0
            self.queues[name] = QueueFound(Presence.EXISTS, messages, consumers)
        else:
            await channel.exchange_declare(name, passive=True)
            self.exchanges[name] = ExchangeFound(Presence.EXISTS)

    def _note(self, is_queue: bool, name: str, error: AMQPChannelError) -> None:
        code, text = reply(error)
        presence = {
            NOT_FOUND: Presence.MISSING,
            RESOURCE_LOCKED: Presence.LOCKED,
            ACCESS_REFUSED: Presence.REFUSED,
        }.get(code, Presence.FAILED)
        if is_queue:
            self.queues[name] = QueueFound(presence, detail=text)
        else:
            self.exchanges[name] = ExchangeFound(presence, detail=text)
