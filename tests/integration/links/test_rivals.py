"""Two agents of a group that take an exchange link over at the same moment, or one just before the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agent.amqp.connect import Connection, connect
from agent.amqp.data.rewriting import Rewriter
from agent.amqp.data.splice import Counts
from agent.amqp.wire import methods
from agent.core.addresses.uri import parse
from agent.core.model import Binding, Exchange, ExchangeLink, LinkSettings
from agent.errors import BrokerError
from agent.links.brokers import Brokers
from agent.links.connections import Connections
from agent.links.errors import ServedElsewhereError
from agent.links.exchange.internal_exchange import InternalExchanges
from agent.links.exchange.link import ExchangeLinks, RunnableExchangeLink
from agent.links.exchange.session import LOOK_EVERY
from agent.links.flow import Flow
from tests.lab import user_program
from tests.lab.node import Node

TIME_TO_BIND = 0.3


async def test_the_one_that_does_not_get_the_queue_binds_nothing(
    broker: Node, second_broker: Node, name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may know other bindings, and whoever has the queue couldn't find them on the internal exchange of both."""
    source = name("rivals")
    queue = f"federation: {source} -> here"
    broker.admin.exchange("/", source)
    link = link_from(broker, source)
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


class Rival:
    """Another agent, as the upstream sees it."""

    def __init__(self, connection: Connection, source: str) -> None:
        self._connection = connection
        self._source = source
        self._queue = f"federation: {source} -> here"

    async def builds(self) -> None:
        channel, internal = await self._connection.channel(), f"{self._queue} B"
        attributes = {"type": "fanout", "durable": True, "auto_delete": True, "internal": True}
        await channel.ask(methods.EXCHANGE_DECLARE, methods.EXCHANGE_DECLARE_OK, exchange=internal, **attributes)
        await channel.ask(methods.QUEUE_BIND, methods.QUEUE_BIND_OK, queue=self._queue, exchange=internal)
        bound = {"source": self._source, "destination": internal, "routing_key": "k"}
        await channel.ask(methods.EXCHANGE_BIND, methods.EXCHANGE_BIND_OK, **bound)

    async def serves_for_a_moment(self) -> None:
        """It replaces what was there before, as who has the queue may."""
        channel = await self._connection.channel()
        consumed = {"queue": self._queue, "exclusive": True, "consumer_tag": "rival"}
        await channel.ask(methods.BASIC_CONSUME, methods.BASIC_CONSUME_OK, **consumed)
        await channel.ask(methods.EXCHANGE_DELETE, methods.EXCHANGE_DELETE_OK, exchange=f"{self._queue} A")
        await channel.ask(methods.BASIC_CANCEL, methods.BASIC_CANCEL_OK, consumer_tag="rival")


@pytest.mark.parametrize("moment", ["before it is declared", "once all is bound"])
async def test_what_another_deletes_that_had_the_queue_for_a_moment_is_bound_again(
    broker: Node, second_broker: Node, name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The link knows what it had bound, and that the internal exchange exists: it looked just before."""
    source = name("rivals")
    broker.admin.exchange("/", source)
    second_broker.admin.exchange("/", source)
    brokers = Brokers((parse(second_broker.uri()),), "here", stall_after=30)
    runnable = ExchangeLinks(brokers).runnable(link_from(broker, source), Counts(), lambda: None)
    await opened_and_left(runnable, brokers)
    declare, start = InternalExchanges.declare, Flow.start
    async with await connect(parse(broker.uri()), where="rival", name="rival") as connection:
        rival = Rival(connection, source)
        await rival.builds()
        moments = [moment]

        async def declares(self: InternalExchanges, *given: object) -> bool:
            if "before it is declared" in moments:
                moments.clear()
                await rival.serves_for_a_moment()
            return await declare(self, *given)  # type: ignore[arg-type]

        async def starts(self: Flow, rewriter: Rewriter) -> None:
            if "once all is bound" in moments:
                moments.clear()
                await asyncio.sleep(LOOK_EVERY + TIME_TO_BIND)
                await rival.serves_for_a_moment()
            await start(self, rewriter)

        monkeypatch.setattr(InternalExchanges, "declare", declares)
        monkeypatch.setattr(Flow, "start", starts)
        try:
            await opened_and_left(runnable, brokers)
        except BrokerError:  # what it had bound isn't there: it begins anew
            await opened_and_left(runnable, brokers)
        assert not moments
    routed = await asyncio.to_thread(user_program.publish, broker.uri(), source, "k", ["after"])
    assert routed == 1


async def opened_and_left(runnable: RunnableExchangeLink, brokers: Brokers) -> None:
    connections = Connections(brokers, lambda _: None)
    session = runnable.session(connections, lambda: frozenset({Binding("k")}), apart=False)
    try:
        await session.open()
    finally:
        if session.flow is not None:
            await session.flow.leave()
        await connections.leave(connections.detach())


def link_from(broker: Node, source: str) -> ExchangeLink:
    return ExchangeLink(
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
