"""Judgements of what brokers show when a connection opens, and of alarms of their nodes."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

import pytest

from agent.check.brokers import (
    DAY,
    judge_addresses,
    judge_broker,
    judge_clock,
    judge_credit,
    judge_nodes,
    judge_pair,
    judge_unseen,
)
from agent.check.context import BrokerApis, BrokerFacts, CheckContext, Expiring, ends_of
from agent.check.findings import Finding, FindingLevel, Topic
from agent.core.links.plan import Outlook, PlannedLink
from agent.core.model import AddressDestination, AddressSource
from agent.management.answers import NodeAnswer
from tests.unit.core.some_links import shovel_link

FINE: NodeAnswer = {"name": "rabbit@a", "mem_alarm": False, "disk_free_alarm": False}


def opened(**more: object) -> BrokerFacts:
    settings = {"frame_max": 131072, "channel_max": 2047, "version": "3.13.0", "cluster": "c"} | more
    return BrokerFacts(where="upstream a", vhost="/", user="u", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(("days", "level"), [(-1, FindingLevel.ERROR), (29, FindingLevel.WARNING), (31, None)])
def test_certificates(days: float, level: FindingLevel | None) -> None:
    certified = opened(is_encrypted=True, is_verified=True, certificates=(Expiring("it", days * DAY),))
    assert [each.level for each in judge_broker(certified, 0.0)] == ([] if level is None else [level])


def test_few_channels() -> None:
    [found] = judge_broker(opened(channel_max=4), 0.0)
    assert found.topic is Topic.LIMITS


def test_a_destination_that_takes_less() -> None:
    found = list(judge_pair(opened(), opened(frame_max=8192, limits_deliveries=True)))
    assert [each.level for each in found] == [FindingLevel.NOTE, FindingLevel.NOTE]
    assert list(judge_pair(opened(), opened())) == []


def test_without_a_quarantine_messages_stay_at_their_source() -> None:
    [found] = judge_pair(opened(), opened(limits_deliveries=True), has_quarantine=False)
    assert "larger ones stay at the source" in found.message
    assert list(judge_pair(opened(product="ActiveMQ"), opened(limits_deliveries=True))) == []


def judged(
    source: str,
    destination: str,
    *,
    outlook: Outlook = Outlook.RUN,
    without: Container[str] = (),
    **broker: object,
) -> list[Finding]:
    link = shovel_link(AddressSource(source))
    link = replace(link, shovel=replace(link.shovel, destination=AddressDestination(destination)))
    ends = ends_of(PlannedLink(link, outlook, "", ""), ())
    facts = {end: (opened(**broker),) for end in (ends.source, ends.destination)}
    context = CheckContext((ends,), facts, "c", BrokerApis(()))
    return [*judge_addresses(context), *judge_credit(context, without)]


def test_an_address_of_a_form_that_is_on_its_way_out() -> None:
    source, destination = judged("/queue/a b", "/topic/k", limits_deliveries=True)
    assert (source.level, source.links, source.fix) == (FindingLevel.WARNING, ("//s",), "write '/queues/a%20b'")
    assert destination.fix == "write '/exchanges/amq.topic/k'"
    [exchange] = judged("/exchange/x/k", "/queues/b", limits_deliveries=True)
    assert exchange.fix == "write '/queues/NAME' of a queue that is bound to the exchange"
    assert judged("/queue/a", "/topic/k") == []  # of a release before 4.0
    assert judged("a", "b", product="ActiveMQ") == []
    assert judged("/queue/a", "/topic/k", limits_deliveries=True, outlook=Outlook.INVALID) == []  # its error says it


def test_an_address_without_credit_is_named_with_its_shovel() -> None:
    [found] = judged("a", "b", product="ActiveMQ", without={shovel_link().id})
    assert (found.level, found.links) == (FindingLevel.WARNING, ("//s",))
    assert "'b' gives no credit" in found.message
    assert judged("a", "b", product="ActiveMQ", without={"another"}) == []


@pytest.mark.parametrize(("difference", "found"), [(0.0, 0), (4.9, 0), (-4.9, 0), (6.0, 1), (-6.0, 1)])
def test_clocks(difference: float, found: int) -> None:
    assert len(list(judge_clock("here", difference))) == found


def test_each_resource_is_a_finding_that_names_the_nodes() -> None:
    nodes: list[NodeAnswer] = [
        FINE,
        {"name": "rabbit@b", "mem_alarm": True, "disk_free_alarm": True},
        {"name": "rabbit@c", "mem_alarm": True, "disk_free_alarm": False},
    ]
    memory, disk = judge_nodes("downstream http://h", nodes, links_to=["//x", "//x"], links_from=[])
    assert memory.message.startswith("memory alarm on rabbit@b, rabbit@c: ")
    assert disk.message.startswith("disk alarm on rabbit@b: ")
    assert "disk_free_limit" in disk.fix
    assert (memory.level, memory.links) == (FindingLevel.ERROR, ("//x",))


def test_no_alarm_is_no_finding_and_no_statistics_a_note() -> None:
    assert list(judge_nodes("h", [FINE], links_to=["//x"], links_from=[])) == []
    [unseen] = judge_nodes("h", [{"name": "rabbit@a"}], links_to=["//x"], links_from=[])
    assert (unseen.level, "can't be seen" in unseen.message) == (FindingLevel.NOTE, True)


def test_brokers_without_an_api_are_named_up_to_a_number() -> None:
    assert list(judge_unseen([])) == []
    [found] = judge_unseen([f"upstream u{number}" for number in range(8)])
    assert "upstream u4 and 3 more has" in found.message
