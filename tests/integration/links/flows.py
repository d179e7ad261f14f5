"""Flows between two real brokers, made by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from agent.amqp.connect import Connection, connect
from agent.amqp.data.quarantined import Room
from agent.amqp.data.rewriting import Destination, Untouched
from agent.amqp.data.splice import Counts
from agent.core.addresses.uri import parse
from agent.links.flow import Flow
from agent.links.flow_options import FlowOptions, PathMemory
from tests.lab.node import Node


async def opened(node: Node) -> Connection:
    return await connect(parse(node.uri()), where="test", name="test")


def options(queue: str, **more: object) -> FlowOptions:
    """From a queue to the one of the same name on the other broker, as a shovel does it."""
    given: dict[str, object] = {"destination": Destination("", queue)} | more
    return FlowOptions(queue, "shovel", **given)  # type: ignore[arg-type]


@dataclass
class Running:
    flow: Flow
    up: Connection
    down: Connection
    counts: Counts = field(default_factory=Counts)


@asynccontextmanager
async def running(source: Node, destination: Node, wanted: FlowOptions) -> AsyncIterator[Running]:
    """A flow that has started; it leaves at the end, and is closed by the test where that matters."""
    async with await opened(source) as up, await opened(destination) as down:
        counts = Counts()
        flow = Flow(wanted, up=up, down=down, counts=counts, path=PathMemory(), room=Room(0))
        try:
            await flow.start(Untouched())
            yield Running(flow, up, down, counts)
        finally:
            await flow.leave()
