"""What sessions of all kinds have in common; see `agent.links.kind.Session`."""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar

from agent.amqp.connection_pool import Shared
from agent.core.addresses.uri import AmqpUri
from agent.errors import BrokerError, Side
from agent.links.flow import Flow


class Upkeep(Protocol):
    """What a session does while messages flow."""

    @property
    def backlog(self) -> int | None:
        """How many messages wait."""

    def is_quiet(self, now: float) -> bool:
        """Nothing moved, waits or is due."""

    def tick(self, now: float, *, is_blocked: bool) -> float:
        """For how many seconds messages have waited and none was confirmed."""

    async def run(self) -> None:
        """Until cancelled, or until a broker refuses something."""


UpkeepT = TypeVar("UpkeepT", bound=Upkeep)


class OpenSession(Generic[UpkeepT]):
    """`open` of a kind fills in the connections it asks questions on, the flow and the upkeep, as far as it comes."""

    def __init__(self) -> None:
        self.flow: Flow | None = None
        self._controls: list[tuple[Shared, Side]] = []
        self._upkeep: UpkeepT | None = None

    @property
    def backlog(self) -> int | None:
        return None if self._upkeep is None else self._upkeep.backlog

    @property
    def met(self) -> tuple[tuple[AmqpUri, str], ...]:
        there = (control.connection for control, _ in self._controls)
        return tuple((each.uri, each.cluster) for each in there if each.cluster is not None)

    @property
    def ends(self) -> list[asyncio.Future[BrokerError]]:
        asked = [control.connection.wire.closed for control, _ in self._controls]
        return [*asked, *(self.flow.ends if self.flow else ())]

    def explain(self, end: asyncio.Future[BrokerError]) -> BrokerError:
        for control, side in self._controls:
            if end is control.connection.wire.closed:
                error = end.result()
                error.side = error.side or side
                return error
        return self.flow.explain(end) if self.flow else end.result()

    def is_quiet(self, now: float) -> bool:
        return self._upkeep is not None and self._upkeep.is_quiet(now)

    def tick(self, now: float, *, is_blocked: bool) -> float:
        return 0.0 if self._upkeep is None else self._upkeep.tick(now, is_blocked=is_blocked)

    async def keep_up(self) -> None:
        if self._upkeep is not None:
            await self._upkeep.run()
