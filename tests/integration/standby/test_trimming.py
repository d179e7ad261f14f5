"""What is taken out of a copy, by the rule with short times: brokers of tests count each second."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

from agent.core.addresses import uri
from agent.core.addresses.uri import parse
from agent.core.migration.objects import queue_key
from agent.core.standby.settings import StandbySettings
from agent.core.standby.terms import TrimTerms
from agent.core.standby.trim import TrimDoubt, TrimRule
from agent.errors import Place, TransientError
from agent.management.client import ManagementClient
from agent.migration.figures import ClusterFigures
from agent.migration.trimming import CONSUMED_HERE, OTHER_AGENT, Trimming
from tests.integration.federation.conftest import here, site_on, there
from tests.integration.federation.sites import Site
from tests.lab.node import Node

__all__ = ["here", "site_on", "there"]
LATE = 6.0
DEADLINE = 180.0


def settings(*, after: float | None, keep: float | None) -> StandbySettings:
    return StandbySettings("origin", {}, keep, after, None, Place("test"))


class Trimmed:
    """One source and one copy, without links: what comes is published on both sides."""

    def __init__(self, there: Site, here: Site, trimming: Trimming) -> None:
        self.there, self.here = there, here
        self.trimming = trimming
        self.key = queue_key(here.vhost, "q")
        self.doubts: dict[str, str] = {}
        self.terms = TrimTerms()

    async def look(self, seconds: float, *, depth: int | None = None) -> None:
        """For so long, or until the copy has so many messages."""
        async with _client(self.there.node) as source, _client(self.here.node) as standby:
            sides = ClusterFigures(source), ClusterFigures(standby)
            ends = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < ends:
                await asyncio.sleep(1)
                now = self.here.node.admin.get("queues", self.here.vhost, "q").get("messages")
                if depth is not None and now == depth:
                    return
                with suppress(TransientError):  # one that has just started has no figures of its nodes
                    of_source = (await sides[0].look([self.there.vhost])).get((self.there.vhost, "q"))
                    of_copy = (await sides[1].look([self.here.vhost])).get((self.here.vhost, "q"))
                    figures = {self.key: (of_source, of_copy)}
                    found = await self.trimming.look(figures, self.terms, self.trimming.clock())
                    self.doubts = {key.name: doubt for key, doubt in found.items()}
        assert depth is None, self.doubts


def _client(node: Node) -> ManagementClient:
    return ManagementClient([uri.parse_http(node.management_uri())])


def made(there: Site, here: Site, *, after: float | None, keep: float | None) -> Trimmed:
    for site in (there, here):
        site.exchange().queue("k")
    wanted = settings(after=after, keep=keep)
    rule = TrimRule(after=after or 0.0, keep=keep or 0.0, late=LATE, timeout=None)
    loop = asyncio.get_running_loop()
    return Trimmed(there, here, Trimming((parse(here.node.uri()),), wanted, loop.time, rule))


@pytest.mark.thorough
def test_copies_of_what_was_consumed_go_and_others_stay(here: Site, there: Site) -> None:
    async def work() -> None:
        trimmed = made(there, here, after=1, keep=None)
        await trimmed.look(20)
        for site in (there, here):
            site.publish(map(str, range(5)))
        there.take(5)
        await trimmed.look(10)
        await trimmed.look(DEADLINE, depth=0)
        for site in (there, here):
            site.publish(map(str, range(5, 8)))
        await trimmed.look(10)
        await trimmed.trimming.close()
        assert here.take(3) == ["5", "6", "7"]

    asyncio.run(work())


async def _hold(_: AbstractIncomingMessage) -> None:
    """Neither acknowledges nor returns it."""


@pytest.mark.thorough
def test_copies_that_are_too_old_go_unless_somebody_consumes_from_them(here: Site, there: Site) -> None:
    async def work() -> None:
        trimmed = made(there, here, after=None, keep=2)
        await trimmed.look(15)
        here.publish(map(str, range(5)))
        await trimmed.look(10)
        await trimmed.look(DEADLINE, depth=0)
        here.publish(["5"])
        async with await aio_pika.connect(here.uri) as connection:
            channel = await connection.channel()
            await (await channel.get_queue("q")).consume(_hold)
            await trimmed.look(40)
            assert trimmed.doubts == {"q": CONSUMED_HERE}
        await trimmed.trimming.close()
        assert here.take(1) == ["5"]

    asyncio.run(work())


@pytest.mark.thorough
def test_where_the_source_proves_nothing_copies_go_by_their_age(here: Site, there: Site) -> None:
    """The source is seen empty, after which they would go within half a minute."""

    async def work() -> None:
        trimmed = made(there, here, after=1, keep=60)
        trimmed.terms = TrimTerms(by_age_only={trimmed.key: "it may come back"})
        await trimmed.look(20)
        here.publish(map(str, range(5)))
        await trimmed.look(45)
        assert here.node.admin.get("queues", here.vhost, "q")["messages"] == 5
        assert trimmed.doubts == {"q": "only what is older than `keep` is taken out of it: it may come back"}
        await trimmed.look(DEADLINE, depth=0)
        await trimmed.trimming.close()

    asyncio.run(work())


def test_only_one_agent_takes_from_a_vhost(here: Site, there: Site) -> None:
    async def work() -> None:
        one, other = made(there, here, after=1, keep=2), made(there, here, after=1, keep=2)
        figures = {one.key: (None, None)}
        assert await one.trimming.look(figures, TrimTerms(), 0.0) == {one.key: TrimDoubt.NEW}
        assert await other.trimming.look(figures, TrimTerms(), 0.0) == {one.key: OTHER_AGENT}
        await one.trimming.close()
        assert await one.trimming.look(figures, TrimTerms(), 0.0, lambda: True) == {}
        assert await other.trimming.look(figures, TrimTerms(), 0.0) == {one.key: TrimDoubt.NEW}
        await other.trimming.close()

    asyncio.run(work())
