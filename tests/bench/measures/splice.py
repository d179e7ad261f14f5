"""Splicing and settling without sockets and brokers: what the agent's own code takes for a message."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from agent.amqp.wire import frames, methods
from agent.amqp.wire.properties import Properties
from tests.bench.table import Measure, Target
from tests.unit.amqp.wire.link import Link, Sent, feed

MESSAGES: Final = 9_000
TURNS: Final = 20
IN_A_READ: Final = 18  # as in `live`
BODY: Final = bytes(1024)
PERSISTENT: Final = Properties(0x1000, ((0x1000, b"\2"),))


def splice() -> list[Measure]:
    """Reads of 18 messages of 1 KiB with one routing key, each confirmed by one frame; CPU time, without a broker."""
    splicing = Measure("splice", "µs of CPU a message, splicing", (Target(at_most=5, of_agent=True),))
    settling = Measure("settle", "µs of CPU a message, settling")
    for _ in range(TURNS):
        spliced, settled = asyncio.run(_turn())
        splicing.add("agent", spliced)
        settling.add("agent", settled)
    return [splicing, settling]


async def _turn() -> tuple[float, float]:
    """A read, then its confirm, as they come; microseconds a message."""
    link = await Link.made()
    reads = [
        b"".join(link.delivery(Sent(tag, properties=PERSISTENT, body=BODY)) for tag in range(at, at + IN_A_READ))
        for at in range(1, MESSAGES, IN_A_READ)
    ]
    spliced = settled = 0.0
    for number, read in enumerate(reads, start=1):
        confirm = methods.BASIC_ACK.encode(delivery_tag=number * IN_A_READ, multiple=True)
        answer = frames.frame(frames.METHOD, link.into.number, confirm)
        begun = time.process_time()
        feed(link.upstream, read)
        await asyncio.sleep(0)
        between = time.process_time()
        feed(link.downstream, answer)
        await asyncio.sleep(0)
        settled += time.process_time() - between
        spliced += between - begun
        link.down.taken(), link.up.taken()
    count = len(reads) * IN_A_READ
    assert link.counts.forwarded == count, link.counts
    return spliced / count * 1e6, settled / count * 1e6
