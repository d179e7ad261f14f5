"""Binds the upstream exchange to the internal one, a binding for each group, many on the way at once."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from agent.amqp.channel_pool import ChannelPool
from agent.amqp.connect import Connection
from agent.amqp.questions import refusal
from agent.amqp.wire import methods
from agent.amqp.wire.channel import Channel, ChannelClosedError, MethodTooLargeError
from agent.amqp.wire.methods import Call, Method
from agent.core.rules.bindings import Group

# Enough to fill a long path, few enough that an error is found soon and the broker's other work goes on.
IN_FLIGHT: Final = 2_000
LANES: Final = 32
PER_LANE: Final = 25


@dataclass(frozen=True, slots=True)
class TooLarge:
    """A group whose binding fits into no frame; why in an operator's words."""

    group: Group
    why: str


class Binder:
    """Binds and unbinds groups, many in flight.

    A broker works through one channel's questions one by one, so very many are spread over several.
    """

    def __init__(self, connection: Connection, channels: ChannelPool, *, source: str, destination: str) -> None:
        self._connection = connection
        self._channels = channels
        self._source = source
        self._destination = destination

    async def bind(self, groups: Collection[Group]) -> list[TooLarge]:
        """Answers those that were left out: sent all the same, one of them would end the connection of many links."""
        return await self._each(methods.EXCHANGE_BIND, methods.EXCHANGE_BIND_OK, groups)

    async def unbind(self, groups: Collection[Group]) -> None:
        await self._each(methods.EXCHANGE_UNBIND, methods.EXCHANGE_UNBIND_OK, groups)

    async def bind_again(self, groups: Collection[Group]) -> None:
        """What exists already, most likely; nothing waits for it."""
        async with self._channels.borrow() as channel:
            await self._ask_all([channel], methods.EXCHANGE_BIND, methods.EXCHANGE_BIND_OK, groups)

    async def depth(self, queue: str) -> int:
        """How many messages are ready in a queue."""
        async with self._channels.borrow() as channel:
            try:
                answer = await channel.ask(methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, queue=queue, passive=True)
            except ChannelClosedError as error:
                raise refusal(self._connection, f"looking for queue {queue!r}", error) from error
        messages: int = answer["messages"]
        return messages

    async def _each(self, method: Method, answer: Method, groups: Collection[Group]) -> list[TooLarge]:
        if not groups:
            return []
        lanes = self._lanes(len(groups))
        try:
            return await self._ask_all(lanes, method, answer, groups)
        finally:
            for lane in lanes:
                lane.leave()

    def _lanes(self, count: int) -> list[Channel]:
        """One for few groups, and few where other links need what channels there are."""
        wire = self._connection.wire
        wanted = max(1, min(count // PER_LANE, LANES, wire.free_channels // LANES))
        return [wire.begin_channel() for _ in range(wanted)]

    async def _ask_all(
        self, lanes: list[Channel], method: Method, answer: Method, groups: Collection[Group]
    ) -> list[TooLarge]:
        asked: list[tuple[Group, asyncio.Future[Call]]] = []
        too_large: list[TooLarge] = []
        for lane, group in zip(cycle(lanes), groups, strict=False):
            if not lane.is_usable:
                await self._settle(asked, method)  # one of these holds the reason
            elif len(asked) >= IN_FLIGHT:
                await self._settle(asked[: IN_FLIGHT // 2], method)
                del asked[: IN_FLIGHT // 2]
            try:
                asked.append((group, self._ask(lane, method, answer, group)))
            except MethodTooLargeError as error:
                too_large.append(TooLarge(group, str(error)))
        await self._settle(asked, method)
        return too_large

    def _ask(self, lane: Channel, method: Method, answer: Method, group: Group) -> asyncio.Future[Call]:
        return lane.ask_soon(
            method,
            answer,
            source=self._source,
            destination=self._destination,
            routing_key=group.routing_key,
            arguments=group.arguments,
        )

    async def _settle(self, asked: list[tuple[Group, asyncio.Future[Call]]], method: Method) -> None:
        """Looks at the answers in order, so the first error of a lane is the culprit's."""
        for group, future in asked:
            try:
                await future
            except ChannelClosedError as error:
                doing = f"{method.name} of {self._source!r} with key {group.routing_key!r}"
                raise refusal(self._connection, doing, error) from error
