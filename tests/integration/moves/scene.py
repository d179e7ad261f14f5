"""What tests of moves share: the command, queues of every type, and messages with any property."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import aio_pika

from tests.integration.federation.sites import Site
from tests.lab.lab import Lab
from tests.lab.preloaded import Started
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import DEADLINE, eventually

OLD: Final = "old"
NEW: Final = "new"


@dataclass(frozen=True, slots=True)
class Moves:
    """The command `move`."""

    lab: Lab
    directory: Path

    def run(self, source: str, *arguments: str, queue: str = OLD, status: int = 0) -> dict[str, Any]:
        """Run it; the account, which has to add up."""
        command = ("move", "--from", source, "--queue", queue, "--format", "json", *arguments)
        ran = self.lab.agents.run(command, cwd=self.directory, environment={}, deadline=DEADLINE)
        assert ran.status == status, ran
        return added_up(json.loads(ran.out))

    def refused(self, *arguments: str, status: int = 2) -> str:
        """Run it where it can't begin; the error."""
        ran = self.lab.agents.run(("move", *arguments), cwd=self.directory, environment={}, deadline=DEADLINE)
        assert (ran.status, ran.out) == (status, ""), ran
        return ran.err

    def start(self, source: str, *arguments: str, output: Path) -> Started:
        command = ["move", "--from", source, "--queue", OLD, "--format", "json", *arguments]
        return self.lab.agents.start(command, output=output)


def added_up(account: dict[str, Any]) -> dict[str, Any]:
    assert account["taken"] == account["moved"] + sum(account["left"].values()), account
    return account


def queue(
    site: Site, name: str = OLD, *, kind: str = "classic", arguments: Mapping[str, object] = MappingProxyType({})
) -> None:
    site.node.admin.queue(site.vhost, name, arguments={"x-queue-type": kind, **arguments})


def fill(site: Site, count: int, name: str = OLD, *, headers: Mapping[str, Any] | None = None) -> list[str]:
    bodies = numbered(count)
    assert site.publish(bodies, name, exchange="", headers=dict(headers) if headers else None) == count
    return bodies


def publish(site: Site, key: str, messages: Iterable[tuple[str, Mapping[str, Any]]], *, exchange: str = "") -> None:
    """Publish bodies with their headers."""

    async def run() -> None:
        async with await aio_pika.connect(site.uri) as connection:
            channel = await connection.channel()
            to = await channel.get_exchange(exchange, ensure=False)
            for body, headers in messages:
                await to.publish(aio_pika.Message(body.encode(), headers=dict(headers)), key)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, run()).result()


def reject(site: Site, name: str, count: int) -> None:
    """Reject messages as a program does that can't handle them."""

    async def run() -> None:
        async with await aio_pika.connect(site.uri) as connection:
            channel = await connection.channel()
            await channel.set_qos(count)
            consumed = await channel.get_queue(name, ensure=False)
            async with asyncio.timeout(DEADLINE), consumed.iterator() as messages:
                for _ in range(count):
                    await (await anext(messages)).reject(requeue=False)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, run()).result()


def waits(site: Site, count: int, name: str = OLD) -> None:
    eventually(lambda: depth(site.uri, name) == count, what=f"{count} messages wait in {name}")
