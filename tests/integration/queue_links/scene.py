"""What queue links need: federated queues, consumers that come and go, and what the broker shows of them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self
from urllib.request import urlopen

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from agent.amqp.connect import connect_any
from agent.amqp.wire import methods
from agent.amqp.wire.channel import Message
from agent.core.addresses.uri import parse
from tests.integration.federation.running import Agent, Named
from tests.integration.federation.sites import Site, upstreams
from tests.lab.user_program import consumers
from tests.lab.waiting import DEADLINE, eventually

Q: Final = "work"
TAKEN_UPSTREAM: Final = "idle: consumers upstream take everything"
NO_CONSUMERS: Final = "idle: no consumers downstream"


def federated(*sites: Site, pattern: str = "^work", apply_to: str = "queues", **settings: Any) -> dict[str, Any]:
    """What a vhost needs to have its queues `work…` federated with these sites."""
    policy = {"pattern": pattern, "apply-to": apply_to, "definition": {"federation-upstream-set": "all"}}
    return {"upstreams": upstreams(*sites, **settings), "policies": {"federate": policy}}


def queue(site: Site, name: str = Q, *, upstream: str = "origin") -> Named:
    """How tests name the link."""
    return site.vhost, name, upstream


def declare(*sites: Site, name: str = Q, **flags: Any) -> None:
    for site in sites:
        site.node.admin.queue(site.vhost, name, **flags)


def link_of(agent: Agent, name: str = Q) -> dict[str, Any]:
    """The link as the agent's HTTP API shows it."""
    with urlopen(f"http://127.0.0.1:{agent.port}/api/links", timeout=DEADLINE) as answer:
        [found] = [each for each in json.load(answer) if each.get("queue") == name]
    return dict(found)


def wait_error(agent: Agent, text: str | None, name: str = Q, deadline: float = DEADLINE) -> None:
    def shown() -> bool:
        return bool(link_of(agent, name)["error"] == text)

    eventually(shown, deadline, what=f"the link shows {text!r}", ignoring=OSError)


def upstream_consumers(site: Site, name: str = Q) -> int:
    return consumers(site.uri, name)


def consumer_tags(site: Site, name: str = Q) -> list[str]:
    """Of the links' consumers, as the HTTP API lists them, some seconds late."""
    listed = site.node.admin.get("consumers", site.vhost)
    found = (each for each in listed if each["queue"]["name"] == name and each["arguments"])
    return [str(each["consumer_tag"]) for each in found]


def connections_of_links(site: Site, name: str = Q) -> set[str]:
    """Those that consume from the queue, as the HTTP API lists them, some seconds late, and their channels later."""
    listed = site.node.admin.get("consumers", site.vhost)
    found = (each for each in listed if each["queue"]["name"] == name and each["arguments"])
    names = (dict(each["channel_details"]).get("connection_name") for each in found)
    return {str(each) for each in names if each}


async def taken_from(site: Site, name: str, count: int) -> list[str]:
    """The bodies of so many messages, by the agent's own client: aio-pika takes no names of any letters."""
    arrived: asyncio.Queue[Message] = asyncio.Queue()
    async with await connect_any([parse(site.uri)], where="test", name="test") as connection:
        channel = await connection.channel()
        channel.on_message = arrived.put_nowait
        await channel.ask(methods.BASIC_CONSUME, queue=name, no_ack=True)
        async with asyncio.timeout(DEADLINE):
            return [(await arrived.get()).body.decode() for _ in range(count)]


class User:
    """A program that consumes in a thread of its own, while it is entered; `taken` are the bodies."""

    def __init__(
        self,
        site: Site,
        name: str = Q,
        *,
        prefetch: int = 0,
        pause: float = 0.0,
        on_message: Callable[[AbstractIncomingMessage], None] = lambda _: None,
        tag: str | None = None,
        priority: int = 0,
    ) -> None:
        """`pause` is the time that it takes for each message; below 0, its `priority` is that of a link."""
        self._tag, self._priority = tag, priority
        self.taken: list[str] = []
        self._site, self._name = site, name
        self._prefetch, self._pause = prefetch, pause
        self._on_message = on_message
        self._consumes = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._consume(),), daemon=True)

    def start(self) -> None:
        """For one that isn't entered, as it is to be lost."""
        self._thread.start()
        assert self._consumes.wait(DEADLINE)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(DEADLINE)
            self._loop.close()

    def wait(self, count: int, deadline: float = DEADLINE) -> list[str]:
        eventually(lambda: len(self.taken) >= count, deadline, what=f"{count} messages taken")
        return list(self.taken)

    async def _consume(self) -> None:
        async with await aio_pika.connect(self._site.uri) as connection:
            channel = await connection.channel()
            if self._prefetch:
                await channel.set_qos(prefetch_count=self._prefetch)
            consumed = await channel.get_queue(self._name, ensure=False)
            arguments: dict[str, Any] | None = {"x-priority": self._priority} if self._priority else None
            tag = await consumed.consume(self._take, consumer_tag=self._tag, arguments=arguments)
            self._consumes.set()
            await self._stop.wait()
            await consumed.cancel(tag)

    async def _take(self, message: AbstractIncomingMessage) -> None:
        if self._pause:
            await asyncio.sleep(self._pause)
        await message.ack()
        self.taken.append(message.body.decode())
        self._on_message(message)
