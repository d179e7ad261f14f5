"""What is removed where the downstream has another name, and what isn't."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from agent.amqp.connect import connect
from agent.amqp.wire import methods
from agent.core.addresses.uri import parse
from agent.core.links.lifecycle import LinkState, Phase
from agent.core.model import Exchange, ExchangeLink, Link, LinkSettings
from agent.links.brokers import Brokers
from agent.links.exchange.renaming import sweep
from tests.lab.node import Node


@dataclass
class Running:
    link: Link
    state: LinkState = field(default_factory=lambda: LinkState(phase=Phase.OPEN, started=True))
    finished: asyncio.Event = field(default_factory=asyncio.Event)


@pytest.mark.parametrize("is_used", [True, False])
async def test_what_another_cluster_serves_under_the_former_name_stays(
    broker: Node, name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, *, is_used: bool
) -> None:
    monkeypatch.setattr("agent.links.exchange.renaming.UNUSED_WITHIN", 0.5)
    source = name("swept")
    queue = f"federation: {source} -> former"
    broker.admin.queue("/", queue)
    broker.admin.exchange("/", f"{queue} A", "fanout")
    uri = parse(broker.uri())
    link = ExchangeLink(
        id="00000000",
        vhost="/",
        name=source,
        upstream="origin",
        uris=(uri,),
        remote_name=source,
        settings=LinkSettings(),
        policy="p",
        exchange=Exchange(source, "topic"),
    )
    async with await connect(uri, where="another cluster", name="another") as other:
        if is_used:
            channel = await other.channel()
            await channel.ask(methods.BASIC_CONSUME, methods.BASIC_CONSUME_OK, queue=queue)
        await sweep([Running(link)], Brokers((uri,), "new", stall_after=30), "former")
        found = await asyncio.to_thread(broker.admin.get, "exchanges", "/")
        assert (f"{queue} A" in {each["name"] for each in found}) is is_used
