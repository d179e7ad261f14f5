"""Checks how many messages wait in the quarantines beside the sources of links: after a restart nothing else knows.

It uses connections that are open anyway, and checks again only where a quarantine exists, or a link has put something.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from agent.amqp.connect import Connection
from agent.amqp.declares import Presence, probe
from agent.core.rules import quarantine
from agent.errors import BrokerError
from agent.links.ends import End
from agent.slices import in_slices
from agent.status.board import Board, QuarantineDepth

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
class _PlaceState:
    """The state of a place at the last look, when `put` messages had been put there and the broker responded on the
    connections `asked`. `found` is the number of messages; None where no user may look."""

    put: int = 0
    asked: frozenset[Connection] = frozenset()
    found: int | None = None
    is_there: bool = False

    def is_due(self, connections: Iterable[Connection], put: int) -> bool:
        """True if the place is to be looked at again. Brokers of 4.3 don't let everyone look: they are asked once on
        each connection."""
        if not self.asked.issuperset(connections):
            return True
        return self.found is not None and (self.is_there or self.put != put)


class QuarantineDepths:
    """Checks the quarantines of all sources. `asking` returns the open connection for requests to a broker, and None
    where there is none."""

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
        self._places: dict[End, Place] = {}  # of each source that was connected
        self._looks: dict[Place, _PlaceState] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Look at the quarantines at intervals until cancelled."""
        while True:
            with self._board.errors.catching(TASK):
                await self.look()
            await self._sleep(EVERY)

    async def look(self) -> None:
        put: Counter[End] = Counter()
        async for link in in_slices(self._links()):
            if link.source.terminus is None:  # there is none beside a source of AMQP 1.0
                put[link.source] += sum(link.counts.quarantined.values())
        connections: dict[End, Connection | None] = {}
        async for source in in_slices(put):
            connections[source] = self._asking(source)
        connected = {source: _place(connection) for source, connection in connections.items() if connection}
        self._places = {source: place for source, place in (self._places | connected).items() if source in put}
        at: dict[Place, list[End]] = defaultdict(list)
        for source, place in self._places.items():
            at[place].append(source)
        self._looks = {place: self._looks.get(place, _PlaceState()) for place in at}
        due = []
        for place, sources in at.items():
            known = self._looks[place]
            open_ones = {found for source in sources if (found := connections[source])}
            together = sum(put[source] for source in sources)
            if open_ones and known.is_due(open_ones, together):
                due.append(self._look_at(known, open_ones, together))
        await asyncio.gather(*due)
        self._board.quarantine_depth = self._together(put)

    async def _look_at(self, known: _PlaceState, connections: Collection[Connection], put: int) -> None:
        """Look on the first connection whose user may look. If no broker responds, the last known number stays."""
        failed = set()
        async with self._slots:
            for connection in connections:
                try:
                    found = (await probe(connection, queues=[quarantine.QUEUE], exchanges=[])).queues[quarantine.QUEUE]
                except BrokerError:  # whoever needs the connection reports it
                    failed.add(connection)
                    continue
                known.is_there = found.presence is Presence.EXISTS
                known.found = found.messages if found.presence in {Presence.EXISTS, Presence.MISSING} else None
                if known.found is not None:
                    break
        if len(failed) < len(connections):
            known.put, known.asked = put, frozenset(connections) - failed

    def _together(self, put: Mapping[End, int]) -> QuarantineDepth:
        """The depth of all quarantines together. Several ends of links may be one place."""
        found = {place: known.found for place, known in self._looks.items() if known.found is not None}
        unseen = [count for source, count in put.items() if self._places.get(source) not in found]
        messages = sum(found.values()) if found or not unseen else None
        return QuarantineDepth(messages, is_exact=not unseen, unseen=sum(unseen))


def _place(connection: Connection) -> Place:
    return connection.uri.host, connection.uri.connect_port, connection.vhost
