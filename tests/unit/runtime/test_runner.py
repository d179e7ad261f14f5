"""What runs a link, where something happens that nobody foresaw."""

from __future__ import annotations

import asyncio

from agent.amqp.pool import Shared
from agent.core.lifecycle import Status
from agent.core.model import Link
from agent.runtime.runner import LinkRunner
from agent.runtime.world import World
from tests.unit.amqp.wire.virtual_loop import in_virtual_time
from tests.unit.status.test_board import LINK


class Broken(World):
    """Where upstream is asked nothing."""

    async def control(self, link: Link) -> Shared:
        raise ValueError(link.upstream)


def test_a_link_ends_whatever_becomes_of_its_removal() -> None:
    async def live() -> None:
        runner = LinkRunner(LINK, Broken((), "here", stall_after=30), on_change=lambda *_: None)
        runner.start()
        await asyncio.sleep(1)
        assert runner.state.status is Status.BACKOFF
        assert runner.state.error == "unexpected error: ValueError"
        runner.unwant()
        async with asyncio.timeout(700):
            await runner.finished.wait()

    in_virtual_time(live())
