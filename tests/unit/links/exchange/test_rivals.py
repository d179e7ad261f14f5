"""Two agents of a group that take an exchange link over at the same moment, or one just before the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.amqp.data.splice import Counts
from agent.amqp.wire import frames, methods
from agent.core.addresses.uri import parse
from agent.core.model import Binding
from agent.errors import BrokerError
from agent.links.brokers import Brokers, Connections
from agent.links.consumer import ServedElsewhereError
from agent.links.exchange.link import LOOK_EVERY, ExchangeLinks, RunnableExchangeLink
from tests.simulation.broker import exchanges
from tests.simulation.broker.broker import Broker
from tests.simulation.broker.queues import Consumer, Message
from tests.simulation.network import Stream
from tests.unit.amqp.wire.link import pieces
from tests.unit.core.some_links import exchange_link
from tests.unit.model_brokers import HERE, THERE, Models, among_models

LINK = replace(exchange_link(), uris=(parse(f"amqp://{THERE}"),))
QUEUE = "federation: x -> here"
TIME_TO_BIND = 0.3


class Rival:
    """Another agent, as the upstream sees it: what it does takes no time."""

    pid, process = "rival", None

    def __init__(self, upstream: Broker) -> None:
        self._upstream = upstream

    def consumes(self) -> None:
        queue = self._upstream.queues[QUEUE]
        queue.consume(Consumer(self, queue, "rival", no_ack=False, exclusive=True, prefetch=0))

    def builds(self) -> None:
        routing, internal = self._upstream.routing, f"{QUEUE} B"
        routing.exchanges[internal] = exchanges.Exchange(
            internal, "fanout", durable=True, auto_delete=True, internal=True
        )
        routing.bindings[exchanges.Binding(internal, QUEUE, to_queue=True, key="")] = None
        routing.bindings[exchanges.Binding("x", internal, to_queue=False, key="k")] = None

    def serves_for_a_moment(self) -> None:
        """It replaces what was there before, as who has the queue may."""
        self._upstream.routing.delete(f"{QUEUE} A")

    def deliver(self, consumer: Consumer, message: Message) -> None:  # noqa: ARG002 - the protocol
        raise AssertionError("nothing is published")

    def cancel(self, consumer: Consumer) -> None:  # noqa: ARG002
        raise AssertionError("the queue stays")


def upstream_of(models: Models) -> Broker:
    for host in (HERE, THERE):
        models.broker(host).routing.exchanges["x"] = exchanges.Exchange("x", "topic", durable=True)
    upstream = models.network.servers[THERE, 5672]
    assert isinstance(upstream, Broker)
    return upstream


def at_the_first(models: Models, asks: Callable[[methods.Call], bool], do: Callable[[Stream], None]) -> list[str]:
    """When the agent first asks for that, and before the broker hears it; answers what is empty from then on."""
    awaited = ["it"]

    def written(stream: Stream, data: bytes) -> None:
        found = [] if data.startswith(b"AMQP") else pieces(data)
        calls = [methods.decode(payload) for kind, number, payload in found if kind == frames.METHOD and number]
        if awaited and any(asks(call) for call in calls):
            awaited.clear()
            do(stream)

    models.network.on_write = written
    return awaited


def is_consume(call: methods.Call) -> bool:
    return call.method is methods.BASIC_CONSUME and call["queue"] == QUEUE


def is_declare_of_internal(call: methods.Call) -> bool:
    return call.method is methods.EXCHANGE_DECLARE and call["exchange"] == f"{QUEUE} A" and not call["passive"]


def brokers(*, is_shared: bool) -> Brokers:
    return Brokers((parse(f"amqp://{HERE}"),), "here", stall_after=30, is_shared=is_shared)


def bound(kind: ExchangeLinks) -> RunnableExchangeLink:
    runnable = kind.runnable(LINK, Counts(), lambda: None)
    runnable.bindings = frozenset({Binding("k")})
    return runnable


async def opened_and_left(runnable: RunnableExchangeLink, shared: Brokers) -> None:
    connections = Connections(shared, lambda _: None)
    session = runnable.session(connections, dedicated=False)
    try:
        await session.open()
    finally:
        if session.flow is not None:
            await session.flow.leave()
        await connections.leave(connections.detach())


def test_the_one_that_does_not_get_the_queue_binds_nothing() -> None:
    """It may know other bindings, and whoever has the queue couldn't find them on the internal exchange of both."""

    async def live(models: Models) -> None:
        upstream = upstream_of(models)
        rival = Rival(upstream)
        awaited = at_the_first(models, is_consume, lambda _: rival.consumes())
        shared = brokers(is_shared=True)
        runnable = bound(ExchangeLinks(shared))
        with pytest.raises(ServedElsewhereError):
            await opened_and_left(runnable, shared)
        assert not awaited
        await asyncio.sleep(TIME_TO_BIND)
        assert list(upstream.routing.bound_from("x")) == []

    among_models(live)


@pytest.mark.parametrize("moment", ["before it is declared", "once all is bound"])
def test_what_another_deletes_that_had_the_queue_for_a_moment_is_bound_again(moment: str) -> None:
    """The link knows what it had bound, and that the internal exchange exists: it looked just before."""

    async def live(models: Models) -> None:
        upstream = upstream_of(models)
        shared, rival = brokers(is_shared=False), Rival(upstream)
        runnable = bound(ExchangeLinks(shared))
        await opened_and_left(runnable, shared)
        assert upstream.routing.route("x", "k") == [QUEUE]
        rival.builds()

        def goes_on(stream: Stream) -> None:
            rival.serves_for_a_moment()
            stream.up.is_held = False
            stream.up.go_on()

        def is_slow(stream: Stream) -> None:
            """The broker hears of the consumer only when all the rest is done."""
            stream.up.is_held = True
            models.network.after(LOOK_EVERY + TIME_TO_BIND, lambda: goes_on(stream))

        if moment == "once all is bound":
            awaited = at_the_first(models, is_consume, is_slow)
        else:
            awaited = at_the_first(models, is_declare_of_internal, lambda _: rival.serves_for_a_moment())
        try:
            await opened_and_left(runnable, shared)
        except BrokerError:  # what it had bound isn't there: it begins anew
            await opened_and_left(runnable, shared)
        assert not awaited
        assert upstream.routing.route("x", "k") == [QUEUE]

    among_models(live)
