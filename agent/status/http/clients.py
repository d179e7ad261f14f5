"""All HTTP connections together: their number, their memory, and which is closed in favour of another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from agent.status.http.client import Connection
from agent.status.http.limits import MOST_HELD, spare_connections

INTERVAL: Final = 1.0


class Connections:
    """If there is no room, the client with the most connections loses the one that has been idle longest."""

    def __init__(self, clock: Callable[[], float], most: int) -> None:
        self.clock = clock
        self.most = most
        self.most_held = MOST_HELD
        self._open: set[Connection] = set()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._open)

    def admit(self, newcomer: Connection) -> bool:
        while len(self._open) >= self.most and self._make_room():
            pass
        if len(self._open) >= self.most + spare_connections(self.most):
            return False
        self._open.add(newcomer)
        return True

    def forget(self, connection: Connection) -> None:
        self._open.discard(connection)

    def has_memory(self) -> bool:
        """Whether one more response may be made; clients that read theirs too slowly are disconnected for it."""
        now = self.clock()
        stalled = sorted(
            (since, id(each), each)
            for each in self._open
            if each.held and (since := each.dispensable_since(now)) is not None
        )
        held = sum(each.held for each in self._open)
        for _, _, each in stalled:
            if held <= self.most_held:
                break
            held -= each.held
            self._drop(each)
        return held <= self.most_held

    def sweep(self) -> None:
        now = self.clock()
        for each in [each for each in self._open if each.is_overdue(now)]:
            self._drop(each)
        self.has_memory()

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            self.sweep()

    def end(self) -> None:
        """The agent stops: it doesn't wait for clients that don't read."""
        for each in [each for each in self._open if each.held]:
            self._drop(each)

    def _make_room(self) -> bool:
        now = self.clock()
        found = [(each, since) for each in self._open if (since := each.dispensable_since(now)) is not None]
        if not found:
            return False
        of_address = Counter(each.address for each in self._open)
        self._drop(min(found, key=lambda pair: (-of_address[pair[0].address], pair[1]))[0])
        return True

    def _drop(self, connection: Connection) -> None:
        """Doesn't count from now on; the transport is closed one turn of the loop later."""
        self._open.discard(connection)
        connection.abort()
