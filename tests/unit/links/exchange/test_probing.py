"""When a link is known not to deliver."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from agent.amqp.connect import Connection
from agent.amqp.data.publish_tracker import Counts
from agent.links.exchange.probing import Probing
from agent.links.flow import Flow
from agent.runtime.ticker import EVERY

PROBE = 10.0


async def test_a_link_that_delivers_nothing_is_seen_within_thirty_seconds_however_its_looks_fall() -> None:
    began = asyncio.get_running_loop().time()
    nothing = SimpleNamespace()
    flow, down = cast("Flow", nothing), cast("Connection", nothing)
    probing = Probing("q", PROBE, flow=flow, counts=Counts(), down=down)
    assert not probing.observe(began + 2.7 * PROBE, forwarded=0, is_blocked=False)
    latest = began + 30 - EVERY
    assert "no probe has come through for 28 s" in probing.observe(latest, forwarded=0, is_blocked=False)
    assert not probing.observe(latest, forwarded=1, is_blocked=False), "a message proves it as well"
