"""Loops, and messages that arrive more than once."""

from __future__ import annotations

from time import process_time

import pytest

from agent.check.context import BrokerApis, BrokerFacts, CheckContext, ends_of
from agent.check.findings import FindingLevel
from agent.check.loops import Transfer, find_loops, judge_loops
from agent.core.addresses.uri import parse
from agent.core.links.plan import Outlook, PlannedLink
from agent.core.model import AddressDestination, AddressSource, QueueDestination, QueueSource, Shovel, ShovelLink
from agent.core.topology.graph import CarrierEnd
from agent.errors import Place

URIS, HERE = (parse("amqp://h"),), Place("agent.yaml")
BROKER = BrokerFacts("h", "/", "u", "4.3.6", "c", frame_max=0, channel_max=0)


def exchange(cluster: str, name: str = "x") -> CarrierEnd:
    return CarrierEnd(cluster, "/", "exchange", name)


def queue(cluster: str) -> CarrierEnd:
    return CarrierEnd(cluster, "/", "queue", "q")


def test_a_pair_in_both_directions_is_no_loop() -> None:
    ways = [Transfer("a", exchange("one"), exchange("two"), 1), Transfer("b", exchange("two"), exchange("one"), 1)]
    assert list(find_loops(ways)) == []


def test_messages_that_arrive_twice() -> None:
    ways = [
        Transfer(f"{one}{other}", exchange(one), exchange(other), 2) for one in "abc" for other in "abc" if one != other
    ]
    found = list(find_loops(ways))
    assert {each.level for each in found} == {FindingLevel.WARNING}
    assert "messages published at exchange 'x' in vhost '/' of a arrive 2 times" in {each.message for each in found}


def test_shovels_in_a_circle_are_one_error() -> None:
    ways = [
        Transfer("a", queue("1"), queue("2")),
        Transfer("b", queue("2"), queue("3")),
        Transfer("c", queue("3"), queue("1")),
    ]
    [found] = find_loops([*ways, Transfer("out", queue("2"), queue("4"))])
    assert (found.level, found.links) == (FindingLevel.ERROR, ("a", "b", "c"))


async def test_a_shovel_by_amqp10_back_to_where_another_comes_from() -> None:
    there = Shovel("there", URIS, URIS, HERE, QueueSource("a/b"), QueueDestination("c"))
    back = Shovel("back", URIS, URIS, HERE, AddressSource("/queues/c"), AddressDestination("/queues/a%2Fb"))
    links = (ShovelLink(id=each.name, vhost="/", name=each.name, uris=URIS, shovel=each) for each in (there, back))
    ends = tuple(ends_of(PlannedLink(link, Outlook.RUN, "", ""), ()) for link in links)
    brokers = {end: (BROKER,) for each in ends for end in (each.source, each.destination)}
    assert len(brokers) == 4, "a broker is asked by the protocol of each end"
    [found] = await judge_loops(CheckContext(ends, brokers, "c", BrokerApis(())))
    assert found.level is FindingLevel.ERROR
    assert sorted(found.links) == ["//back", "//there"]
    assert "queue 'a/b' in vhost '/' of c → queue 'c' in vhost '/' of c" in found.message


def test_a_link_from_itself() -> None:
    [found] = find_loops([Transfer("a", exchange("one"), exchange("one"), 1)])
    assert found.level is FindingLevel.ERROR


def mesh(clusters: int, max_hops: int) -> list[Transfer]:
    names = [str(each) for each in range(clusters)]
    return [Transfer(f"{a}-{b}", exchange(a), exchange(b), max_hops) for a in names for b in names if a != b]


@pytest.mark.parametrize(("clusters", "max_hops"), [(8, 7), (12, 10)])
def test_a_mesh_is_examined_within_seconds_and_the_worst_is_reported(clusters: int, max_hops: int) -> None:
    began = process_time()
    found = list(find_loops(mesh(clusters, max_hops)))
    assert process_time() - began < 5
    assert {each.level for each in found} == {FindingLevel.WARNING}


def test_what_was_not_examined_in_time_is_reported() -> None:
    [found] = find_loops(mesh(3, 2), lambda: False)
    assert found.level is FindingLevel.NOTE
    assert "not all were examined" in found.message
