"""What follows where the downstream has another name."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from agent.core.links.lifecycle import LinkState
from agent.core.model import Link
from agent.links.brokers import Brokers
from agent.links.exchange.renaming import sweep
from tests.unit.amqp.wire.virtual_loop import in_virtual_time
from tests.unit.core.some_links import exchange_link

HOUR = 3600.0


@dataclass
class Standby:
    link: Link = field(default_factory=exchange_link)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    looks: int = 0

    @property
    def state(self) -> LinkState:
        self.looks += 1
        return LinkState(started=True, standby="agent b runs this link")

    @state.setter
    def state(self, value: LinkState) -> None:
        raise NotImplementedError


def test_a_link_that_another_agent_runs_is_seldom_looked_at() -> None:
    async def live() -> None:
        runner = Standby()
        sweeping = asyncio.ensure_future(sweep([runner], Brokers((), "new", stall_after=30), "former"))
        await asyncio.sleep(HOUR)
        assert 0 < runner.looks < HOUR / 20
        runner.finished.set()
        await asyncio.wait_for(sweeping, HOUR)

    in_virtual_time(live())
