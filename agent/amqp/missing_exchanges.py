"""Finds missing exchanges among very many, at a few microseconds of the broker's time each.

Why: docs/decisions/0034-canary.md
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import ChannelPool
from agent.amqp.failures import NOT_FOUND
from agent.amqp.rpc import refusal
from agent.amqp.wire import methods
from agent.amqp.wire.channel import Channel, ChannelClosedError

AT_ONCE: Final = 32  # channels, if exchanges are missing
_WITHOUT_NAME = methods.EXCHANGE_DECLARE.encode(exchange="", type="fanout", passive=True, nowait=True)
_BEFORE_NAME, _AFTER_NAME = _WITHOUT_NAME[:6], _WITHOUT_NAME[7:]  # between them is the length of the name: 0
_NAMED = re.compile(r"no exchange '(.*)' in vhost '", re.DOTALL)

Names = Sequence[str]


class MissingExchanges:
    """Checks the same exchanges of one connection repeatedly.

    A passive declare with `nowait` is answered only if the exchange is missing: by an error that names it and closes
    the channel. The names after it are checked again, in halves, so that no name is sent more than a few times however
    many are missing. Don't ask for names that `core.rules.names` calls harmful: brokers from 4.0 on close the whole
    connection over them.
    """

    def __init__(self, connection: Connection, channels: ChannelPool) -> None:
        self._connection = connection
        self._channels = channels
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def among(self, names: Names) -> frozenset[str]:
        if not names:
            return frozenset()
        async with self._channels.borrow() as channel:
            found, rest = await self._look(channel, names)
        return found | await self._halves(rest)

    async def _halves(self, names: Names) -> frozenset[str]:
        if not names:
            return frozenset()
        middle = (len(names) + 1) // 2
        first, second = await asyncio.gather(self._on_own_channel(names[:middle]), self._on_own_channel(names[middle:]))
        return first | second

    async def _on_own_channel(self, names: Names) -> frozenset[str]:
        if not names:
            return frozenset()
        async with self._gate:
            channel = self._connection.wire.begin_channel()
            try:
                found, rest = await self._look(channel, names)
            finally:
                channel.leave()
        return found | await self._halves(rest)

    async def _look(self, channel: Channel, names: Names) -> tuple[frozenset[str], Names]:
        """Return the first missing exchange, if any, and the names that still have to be checked. If the error doesn't
        show which one is missing, all names have to be checked again. The broker works in order, so once it has
        answered for the last name it has checked the others, too."""
        channel.send_encoded(_encode(name) for name in names[:-1])
        last = {"exchange": names[-1], "type": "fanout", "passive": True}
        try:
            await channel.ask(methods.EXCHANGE_DECLARE, methods.EXCHANGE_DECLARE_OK, **last)
        except ChannelClosedError as error:
            if error.code != NOT_FOUND:
                raise refusal(self._connection, "looking for exchanges", error) from error
            return _culprit(str(error), names)
        return frozenset(), ()


def _encode(name: str) -> bytes:
    """Encode the declare by hand: it is the most frequent of all methods while no messages pass a thousand links."""
    encoded = name.encode("utf-8", "surrogateescape")
    return b"%b%c%b%b" % (_BEFORE_NAME, len(encoded), encoded, _AFTER_NAME)


def _culprit(text: str, names: Names) -> tuple[frozenset[str], Names]:
    named = _NAMED.search(text)
    if named is not None and named[1] in names:
        at = names.index(named[1])
    elif len(names) == 1:
        at = 0
    else:
        return frozenset(), names  # one of them, and the halves show which
    return frozenset({names[at]}), names[at + 1 :]
