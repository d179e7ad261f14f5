"""Binds the upstream exchange to the internal one, with a binding for each group, and many requests in flight.

Why: docs/decisions/0032-few-round-trips.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import ChannelPool
from agent.amqp.failures import PRECONDITION_FAILED
from agent.amqp.rpc import look_at_queue, refusal, refused_while
from agent.amqp.wire import methods
from agent.amqp.wire.channel import Channel, ChannelClosedError, MethodTooLargeError
from agent.amqp.wire.methods import Call, Method
from agent.core.rules.hops import GroupedBinding
from agent.core.status.advice import ALLOW_KEY, topic_advice
from agent.errors import Failure

# Enough to fill a long path, few enough that an error is found soon and the broker's other work goes on.
IN_FLIGHT: Final = 2_000
LANES: Final = 32
PER_LANE: Final = 25


Asked = tuple[Channel, GroupedBinding, asyncio.Future[Call]]
MOST_REFUSED: Final = 1_000
"""The most refused groups at once: each costs a channel and a line of the upstream's log, and a tenant may have any
number."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A group whose binding fits into no frame or that the broker refuses; `why` is in an operator's words."""

    group: GroupedBinding
    why: str
    is_refused: bool = False
    advice: str = ""  # where topic permissions refuse it, which may refuse all keys alike
    failure: Failure | None = None  # the facts of that


class Binder:
    """Binds and unbinds groups, many in flight.

    A broker works through one channel's requests one by one, so very many are spread over several channels.
    """

    def __init__(self, connection: Connection, channels: ChannelPool, *, source: str, destination: str) -> None:
        self._connection = connection
        self._channels = channels
        self._source = source
        self._destination = destination

    async def bind(self, groups: Collection[GroupedBinding]) -> list[LeftOut]:
        """Bind groups; return those that were left out: one binding of a tenant must not keep the others from being
        made."""
        return await self._each(methods.EXCHANGE_BIND, groups)

    async def unbind(self, groups: Collection[GroupedBinding]) -> list[LeftOut]:
        """Unbind groups; return those that stay bound: former topic permissions may have allowed them."""
        return await self._each(methods.EXCHANGE_UNBIND, groups)

    async def bind_again(self, groups: Collection[GroupedBinding]) -> list[LeftOut]:
        """Bind groups that most likely are bound already, on one channel at a time: nothing waits for it."""
        left_out: list[LeftOut] = []
        while groups:
            async with self._channels.borrow() as channel:
                groups = await self._ask_all([channel], methods.EXCHANGE_BIND, groups, left_out)
        return left_out

    async def depth(self, queue: str) -> int:
        """The number of messages that are ready in a queue."""
        async with self._channels.borrow() as channel:
            with refused_while(self._connection, f"looking for queue {queue!r}"):
                return int((await look_at_queue(channel, queue))["messages"])

    async def _each(self, method: Method, groups: Collection[GroupedBinding]) -> list[LeftOut]:
        left_out: list[LeftOut] = []
        while groups:
            lanes = self._lanes(len(groups))
            try:
                groups = await self._ask_all(lanes, method, groups, left_out)
            finally:
                for lane in lanes:
                    lane.leave()
        return left_out

    def _lanes(self, count: int) -> list[Channel]:
        """The channels to use: one for few groups, and few if other links need what channels there are."""
        wire = self._connection.wire
        wanted = max(1, min(count // PER_LANE, LANES, wire.free_channels // LANES))
        return [wire.begin_channel() for _ in range(wanted)]

    async def _ask_all(
        self,
        lanes: list[Channel],
        method: Method,
        groups: Collection[GroupedBinding],
        left_out: list[LeftOut],
    ) -> list[GroupedBinding]:
        """Ask for all groups, and add the refused ones to `left_out`; return those to ask for again, as another's
        refusal closed their channel."""
        asked: list[Asked] = []
        again: list[GroupedBinding] = []
        refused: set[Channel] = set()
        for lane, group in zip(cycle(lanes), groups, strict=False):
            if lane in refused:
                again.append(group)
                continue
            settled = len(asked) if not lane.is_usable else IN_FLIGHT // 2 if len(asked) >= IN_FLIGHT else 0
            again += await self._settle(asked[:settled], method, refused, left_out)  # one of these holds the reason
            del asked[:settled]
            try:
                if lane in refused:
                    again.append(group)
                else:
                    asked.append((lane, group, self._ask(lane, method, group)))
            except MethodTooLargeError as error:
                left_out.append(LeftOut(group, error.what))
        return again + await self._settle(asked, method, refused, left_out)

    def _ask(self, lane: Channel, method: Method, group: GroupedBinding) -> asyncio.Future[Call]:
        return lane.ask_soon(
            method,
            source=self._source,
            destination=self._destination,
            routing_key=group.routing_key,
            arguments=group.arguments,
        )

    async def _settle(
        self, asked: list[Asked], method: Method, refused: set[Channel], left_out: list[LeftOut]
    ) -> list[GroupedBinding]:
        """Look at the answers in order, so that the first error of a lane is the culprit's; return what follows it
        there, to be asked for again."""
        again = []
        for lane, group, future in asked:
            try:
                await future
            except ChannelClosedError as error:
                if lane in refused:
                    again.append(group)
                elif not (error.is_over_topic or error.code == PRECONDITION_FAILED) or _is_full(left_out):
                    doing = f"{method.name} of {self._source!r} with key {group.routing_key!r}"
                    raise refusal(self._connection, doing, error) from error
                else:
                    refused.add(lane)
                    left_out.append(self._left_out(group, error))
        return again

    def _left_out(self, group: GroupedBinding, error: ChannelClosedError) -> LeftOut:
        if not error.is_over_topic:
            return LeftOut(group, error.what, is_refused=True)
        user = error.failure.user  # a certificate's isn't known where the refusal of a long key doesn't name it
        advice = topic_advice(self._source, user, self._connection.vhost) if user else ALLOW_KEY
        why = f"{error.what}. {advice} Then restart the link."
        return LeftOut(group, why, is_refused=True, advice=advice, failure=error.failure)


def _is_full(left_out: Collection[LeftOut]) -> bool:
    return sum(each.is_refused for each in left_out) >= MOST_REFUSED
