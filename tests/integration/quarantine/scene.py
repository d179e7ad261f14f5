"""What tests of the quarantine share."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site
from tests.integration.federation.test_api import ask
from tests.lab.user_program import depth, messages
from tests.lab.waiting import eventually

QUARANTINE: Final = "federation-agent: quarantine"
LIMIT: Final = 65_536
LARGE: Final = "x" * (LIMIT + 1)


def publish_one(site: Site, exchange: str, key: str, body: str, **properties: Any) -> None:
    """As users' programs do, with any property."""

    async def publish() -> None:
        async with await aio_pika.connect(site.uri) as connection:
            channel = await connection.channel()
            to = await channel.get_exchange(exchange) if exchange else channel.default_exchange
            await to.publish(aio_pika.Message(body.encode(), **properties), key)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, publish()).result()


def quarantined(site: Site, count: int) -> list[AbstractIncomingMessage]:
    eventually(lambda: has_queue(site) and depth(site.uri, QUARANTINE) == count, what=f"{count} are in quarantine")
    return messages(site.uri, QUARANTINE, count)


def has_queue(site: Site) -> bool:
    return any(each["name"] == QUARANTINE for each in site.node.admin.get("queues", site.vhost))


def only(agent: Agent) -> dict[str, Any]:
    [found] = ask(agent, "/api/links")
    return dict(found)
