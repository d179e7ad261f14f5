"""The note that an upstream exchange was missing: where it is given, where not, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from agent.amqp.data.splice import Counts
from agent.core.addresses.uri import parse
from agent.core.model import Binding
from agent.links.brokers import Brokers, Connections
from agent.links.exchange.builder import EXCHANGE, EXCHANGE_OR_CANARY
from agent.links.exchange.link import ExchangeLinks, ExchangeSession, RunnableExchangeLink
from agent.links.exchange.upkeep import SHOWN_FOR
from tests.simulation.broker import exchanges
from tests.simulation.broker.broker import Broker
from tests.unit.core.some_links import exchange_link
from tests.unit.model_brokers import HERE, THERE, Models, among_models

LINK = replace(exchange_link(), uris=(parse(f"amqp://{THERE}"),))
BOUND_AGAIN = "was missing, and is bound again: what was published in between may be missing"
TIME_FOR_CANARY = 60.0


def agent() -> tuple[Brokers, RunnableExchangeLink]:
    shared = Brokers((parse(f"amqp://{HERE}"),), "here", stall_after=30)
    runnable = ExchangeLinks(shared).runnable(LINK, Counts(), lambda: None)
    runnable.bindings = frozenset({Binding("k")})
    return shared, runnable


@asynccontextmanager
async def session(shared: Brokers, runnable: RunnableExchangeLink) -> AsyncIterator[ExchangeSession]:
    """Open until the end of the block."""
    connections = Connections(shared, lambda _: None)
    opened = runnable.session(connections, dedicated=False)
    try:
        await opened.open()
        yield opened
    finally:
        if opened.flow is not None:
            await opened.flow.leave()
        await connections.leave(connections.detach())


async def ran(shared: Brokers, runnable: RunnableExchangeLink) -> None:
    """Until it has its canary."""
    async with session(shared, runnable) as opened:
        keeping = asyncio.ensure_future(opened.keep_up())
        await asyncio.sleep(TIME_FOR_CANARY)
        keeping.cancel()
        await asyncio.wait([keeping])


def upstream_of(models: Models) -> Broker:
    """It has no exchange yet."""
    models.broker(HERE).routing.exchanges["x"] = exchanges.Exchange("x", "topic", durable=True)
    return models.broker(THERE)


def test_a_first_start_finds_nothing_missing() -> None:
    async def live(models: Models) -> None:
        upstream = upstream_of(models)
        shared, runnable = agent()
        await ran(shared, runnable)
        assert runnable.notes == ""
        await ran(shared, runnable)
        assert runnable.notes == ""
        assert upstream.routing.route("x", "k")

    among_models(live)


@pytest.mark.parametrize(("is_declared_again", "what"), [(False, EXCHANGE), (True, EXCHANGE_OR_CANARY)])
def test_an_exchange_that_was_deleted_until_the_next_connection(*, is_declared_again: bool, what: str) -> None:
    async def live(models: Models) -> None:
        upstream = upstream_of(models)
        shared, runnable = agent()
        await ran(shared, runnable)
        upstream.routing.delete("x")
        if is_declared_again:
            upstream.routing.exchanges["x"] = exchanges.Exchange("x", "topic", durable=True)
        async with session(shared, runnable):
            assert runnable.notes == f"{what} {BOUND_AGAIN}"
            assert upstream.routing.route("x", "k")

    among_models(live)


def test_an_exchange_that_is_missing_when_the_agent_starts_again() -> None:
    """What links built there shows that there was one."""

    async def live(models: Models) -> None:
        upstream = upstream_of(models)
        await ran(*agent())
        upstream.routing.delete("x")
        shared, runnable = agent()
        async with session(shared, runnable):
            assert runnable.notes == f"{EXCHANGE} {BOUND_AGAIN}"

    among_models(live)


def test_the_note_ends_after_an_hour() -> None:
    async def live(models: Models) -> None:
        upstream = upstream_of(models)
        shared, runnable = agent()
        await ran(shared, runnable)
        upstream.routing.delete("x")
        async with session(shared, runnable) as opened:
            until = asyncio.get_running_loop().time() + SHOWN_FOR
            opened.tick(until - 1, is_blocked=False)
            assert runnable.notes
            assert not opened.is_quiet(until)
            opened.tick(until, is_blocked=False)
            assert runnable.notes == ""

    among_models(live)
