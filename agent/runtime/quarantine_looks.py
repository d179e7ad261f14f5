"""Looks how many messages wait in the quarantines beside the sources of links: after a restart nobody else knows.

It asks on connections that are open anyway, and asks again only where a quarantine is, or a link has put something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from agent.amqp.connect import Connection
from agent.amqp.passive_declares import Presence, probe
from agent.core.rules import quarantine
from agent.errors import BrokerError
from agent.links.ends import End
from agent.status.board import Board, InQuarantine
from agent.status.slices import in_slices

TASK: Final = "look into quarantines"
EVERY: Final = 10.0  # seconds
AT_ONCE: Final = 8

Place = tuple[str, int, str]
"""A vhost of a broker, as it is reached."""


class Counted(Protocol):
    quarantined: dict[str, int]


class Sourced(Protocol):
    """A link; `source` is where its messages come from."""

    @property
    def source(self) -> End: ...

    @property
    def counts(self) -> Counted: ...


@dataclass(slots=True)
class _Source:
    """`put` and `asked` are of the last look; `found` is None where it isn't known how many there are."""

    put: int = 0
    asked: Connection | None = None
    place: Place | None = None
    found: int | None = None
    is_there: bool = False
    is_refused: bool = False

    def is_due(self, connection: Connection, put: int) -> bool:
        """Brokers of 4.3 don't let everyone look: they are asked once on each connection."""
        if self.asked is not connection:
            return True
        return not self.is_refused and (self.is_there or self.put != put)


class QuarantineLooks:
    """`asking` answers the open connection on which a broker is asked things, and None where there is none."""

    def __init__(
        self,
        links: Callable[[], Iterable[Sourced]],
        asking: Callable[[End], Connection | None],
        board: Board,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._links = links
        self._asking = asking
        self._board = board
        self._sleep = sleep
        self._sources: dict[End, _Source] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            with self._board.errors.catching(TASK):
                await self.look()
            await self._sleep(EVERY)

    async def look(self) -> None:
        put: dict[End, int] = {}
        async for link in in_slices(self._links()):
            source = link.source
            put[source] = put.get(source, 0) + sum(link.counts.quarantined.values())
        self._sources = {source: self._sources.get(source, _Source()) for source in put}
        due: list[tuple[_Source, Connection, int]] = []
        async for source, known in in_slices(self._sources.items()):
            connection = self._asking(source)
            if connection is not None and known.is_due(connection, put[source]):
                due.append((known, connection, put[source]))
        await asyncio.gather(*(self._look_beside(*each) for each in due))
        self._board.in_quarantine = self._together()

    async def _look_beside(self, known: _Source, connection: Connection, put: int) -> None:
        """Where it can't be asked, what was known last is the best there is."""
        async with self._slots:
            try:
                found = (await probe(connection, queues=[quarantine.QUEUE], exchanges=[])).queues[quarantine.QUEUE]
            except BrokerError:  # whoever needs the connection reports it
                return
        known.put, known.asked = put, connection
        known.place = connection.uri.host, connection.uri.connect_port, connection.vhost
        known.is_there = found.presence is Presence.EXISTS
        known.is_refused = found.presence not in {Presence.EXISTS, Presence.MISSING}
        known.found = None if known.is_refused else found.messages

    def _together(self) -> InQuarantine:
        """Several ends of links may be one place."""
        places = {each.place: each.found for each in self._sources.values() if each.place and each.found is not None}
        are_all_known = all(each.found is not None for each in self._sources.values())
        return InQuarantine(sum(places.values()) if places or are_all_known else None, is_exact=are_all_known)
