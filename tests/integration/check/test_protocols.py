"""Clients by AMQP 1.0 beside links: their number is named where something may be lost."""

from __future__ import annotations

import pytest

from agent.check.configuration import judge_protocols
from agent.check.context import BrokerApis, BrokerFacts, CheckContext, LinkEnds, upstream
from agent.check.findings import Finding, FindingLevel
from agent.core.addresses import uri
from agent.core.links.plan import Outlook, PlannedLink
from tests.integration.check.some_brokers import Answers, api
from tests.unit.core.some_links import exchange_link, queue_link

ORIGIN = upstream("origin", "/", [uri.parse("amqp://u:p@127.0.0.1:1")], [])


async def judged(*protocols: object, limits_deliveries: bool = True) -> list[Finding]:
    facts = BrokerFacts("upstream origin", "/", "u", "4.3.6", "c", 131072, 2047, limits_deliveries=limits_deliveries)
    links = tuple(
        LinkEnds(PlannedLink(link, Outlook.RUN, "", ""), ORIGIN, ORIGIN) for link in (exchange_link(), queue_link())
    )
    async with api(Answers(vhosts=[{"protocol": each} for each in protocols])) as answering:
        apis = BrokerApis((), given={"origin": answering})
        return [each async for each in judge_protocols(CheckContext(links, {ORIGIN: (facts,)}, "c", apis))]


async def test_their_number_is_named_once_for_all_links() -> None:
    [found] = await judged("AMQP 1-0", "AMQP 0-9-1", "AMQP 1-0", None, ["odd"], "MQTT 3.1.1")
    assert found.level is FindingLevel.WARNING
    assert found.message.startswith("2 connections to vhost '/' by AMQP 1.0: ")
    assert "docs/amqp10-conversion.md" in found.fix
    assert found.links == ("//x", "//x")


@pytest.mark.parametrize("protocols", [[], ["AMQP 0-9-1", "stream"]])
async def test_without_any_nothing_is_said(protocols: list[str]) -> None:
    assert await judged(*protocols) == []


async def test_a_broker_before_4_0_converts_what_comes_itself() -> None:
    assert await judged("AMQP 1.0", limits_deliveries=False) == []
