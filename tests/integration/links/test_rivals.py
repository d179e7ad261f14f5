"""Two agents of a group that take an exchange link over at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agent.amqp.connect import connect
from agent.amqp.data.rewriting import Rewriter
from agent.amqp.data.splice import Counts
from agent.amqp.wire import methods
from agent.core.addresses.uri import parse
from agent.core.model import Binding, Exchange, ExchangeLink, LinkSettings
from agent.links.brokers import Brokers
from agent.links.connections import Connections
from agent.links.errors import ServedElsewhereError
from agent.links.exchange.link import ExchangeLinks
from agent.links.flow import Flow
from tests.lab.node import Node

TIME_TO_BIND = 0.3


async def test_the_one_that_does_not_get_the_queue_binds_nothing(
    broker: Node, second_broker: Node, name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may know other bindings, and whoever has the queue couldn't find them on the internal exchange of both."""
    source = name("rivals")
    queue = f"federation: {source} -> here"
    broker.admin.exchange("/", source)
    link = ExchangeLink(
        id="00000000",
        vhost="/",
        name=source,
        upstream="origin",
        uris=(parse(broker.uri()),),
        remote_name=source,
        settings=LinkSettings(),
        policy="p",
        exchange=Exchange(source, "topic"),
    )
    brokers = Brokers((parse(second_broker.uri()),), "here", stall_after=30, is_shared=True)
    connections = Connections(brokers, lambda _: None)
    session = (
        ExchangeLinks(brokers)
        .runnable(link, Counts(), lambda: None)
        .session(connections, lambda: frozenset({Binding("stale")}), apart=False)
    )
    start = Flow.start
    async with await connect(parse(broker.uri()), where="rival", name="rival") as rival:

        async def later(flow: Flow, rewriter: Rewriter) -> None:
            taken = (await rival.channel()).ask(
                methods.BASIC_CONSUME, methods.BASIC_CONSUME_OK, queue=queue, exclusive=True
            )
            await taken
            await asyncio.sleep(TIME_TO_BIND)
            await start(flow, rewriter)

        monkeypatch.setattr(Flow, "start", later)
        with pytest.raises(ServedElsewhereError):
            await session.open()
        found = await asyncio.to_thread(broker.admin.get, "bindings", "/")
        assert [each["routing_key"] for each in found if each["source"] == source] == []
        if session.flow is not None:
            await session.flow.leave()
        await connections.leave(connections.detach())
