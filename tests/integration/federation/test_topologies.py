"""Messages arrive exactly as often as the topology and max-hops say. Sites are vhosts, which hops tell apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Q, Site, X, federated
from tests.lab.node import Node
from tests.lab.user_program import numbered, times

Edges = Mapping[int, Sequence[int]]
"""For each downstream site the numbers of its upstream sites."""


class Topology:
    """Sites on the brokers in turn, a queue bound to everything at each, and an agent beside each broker."""

    def __init__(
        self, agent_of: AgentOf, site_on: SiteOn, brokers: Sequence[Node], edges: Edges, max_hops: int
    ) -> None:
        count = 1 + max(*edges, *(upstream for found in edges.values() for upstream in found))
        self.sites = [site_on(brokers[number % len(brokers)]) for number in range(count)]
        for site in self.sites:
            site.exchange(kind="fanout").queue("")
        self.agents: list[Agent] = []
        for broker in brokers:
            beside = {site.vhost: self._upstreams(edges.get(number, ()), max_hops) for number, site in self._on(broker)}
            agent = agent_of(broker).write(beside).start()
            self.agents.append(agent)
        for broker, agent in zip(brokers, self.agents, strict=True):
            agent.wait_running(sum(len(edges.get(number, ())) for number, _ in self._on(broker)))
        self._wait_steady(edges, max_hops)

    def _on(self, broker: Node) -> list[tuple[int, Site]]:
        return [(number, site) for number, site in enumerate(self.sites) if site.node is broker]

    def _upstreams(self, numbers: Sequence[int], max_hops: int) -> dict[str, object]:
        return federated(*(self.sites[number] for number in numbers), **{"max-hops": max_hops})

    def _wait_steady(self, edges: Edges, max_hops: int) -> None:
        """Until bindings have travelled as far as they may."""
        expected = bound_entries(edges, len(self.sites), max_hops)
        for number, site in enumerate(self.sites):
            site.wait_bound(*[""] * expected[number])

    def publish(self, number: int, bodies: list[str]) -> None:
        self.sites[number].publish(bodies, "")

    def check(self, copies: Mapping[int, int], bodies: list[str]) -> None:
        """How often each message has come at each site, those that expect none included."""
        for number, site in enumerate(self.sites):
            wanted = copies.get(number, 0)
            got = times(site.take(wanted * len(bodies), queue=Q))
            assert got == (dict.fromkeys(bodies, wanted) if wanted else {}), f"at site {number}"


def bound_entries(edges: Edges, count: int, max_hops: int) -> list[int]:
    """How many bindings links keep at each site: one for each distinct way that bindings come along."""
    arrived: list[set[tuple[int, ...]]] = [set() for _ in range(count)]
    fresh: list[tuple[tuple[int, ...], int]] = [
        ((downstream,), upstream) for downstream, found in edges.items() for upstream in found
    ]
    while fresh:
        way, at = fresh.pop()
        if way in arrived[at]:
            continue
        arrived[at].add(way)
        longer = (at, *way)
        fresh += [
            (longer, upstream) for upstream in edges.get(at, ()) if len(longer) <= max_hops and upstream not in longer
        ]
    return [len(ways) for ways in arrived]


BODIES = numbered(50)


def test_a_pair(agent_of: AgentOf, site_on: SiteOn, brokers: Sequence[Node]) -> None:
    pair = Topology(agent_of, site_on, brokers, {0: [1], 1: [0]}, max_hops=1)
    for number in (0, 1):
        pair.publish(number, BODIES)
        pair.check({0: 1, 1: 1}, BODIES)


def test_a_complete_graph(agent_of: AgentOf, site_on: SiteOn, brokers: Sequence[Node]) -> None:
    edges = {number: [other for other in range(4) if other != number] for number in range(4)}
    graph = Topology(agent_of, site_on, brokers, edges, max_hops=1)
    for number in (0, 3):
        graph.publish(number, BODIES)
        graph.check(dict.fromkeys(range(4), 1), BODIES)


def test_a_tree_of_depth_three(agent_of: AgentOf, site_on: SiteOn, brokers: Sequence[Node]) -> None:
    """0 above 1 and 2, these above 3, 4, 5, 6, and 3 above 7."""
    edges = {1: [0], 2: [0], 3: [1], 4: [1], 5: [2], 6: [2], 7: [3]}
    tree = Topology(agent_of, site_on, brokers, edges, max_hops=3)
    tree.publish(0, BODIES)
    tree.check(dict.fromkeys(range(8), 1), BODIES)
    tree.publish(1, BODIES)
    tree.check(dict.fromkeys((1, 3, 4, 7), 1), BODIES)


def test_a_ring_of_six(agent_of: AgentOf, site_on: SiteOn, brokers: Sequence[Node]) -> None:
    edges = {number: [(number + 1) % 6] for number in range(6)}
    ring = Topology(agent_of, site_on, brokers, edges, max_hops=5)
    for number in (0, 3):
        ring.publish(number, BODIES)
        ring.check(dict.fromkeys(range(6), 1), BODIES)


def test_a_ring_of_three_with_two_hops(agent_of: AgentOf, site_on: SiteOn, broker: Node) -> None:
    ring = Topology(agent_of, site_on, [broker], {0: [1], 1: [2], 2: [0]}, max_hops=2)
    for number in range(3):
        ring.publish(number, BODIES)
        ring.check(dict.fromkeys(range(3), 1), BODIES)


@pytest.mark.parametrize(("max_hops", "copies"), [(1, {0: 1, 1: 1, 2: 1}), (2, {0: 1, 1: 1, 2: 1, 3: 2})])
def test_a_diamond(
    agent_of: AgentOf, site_on: SiteOn, brokers: Sequence[Node], max_hops: int, copies: Mapping[int, int]
) -> None:
    """Two ways lead to the lowest site: a message comes by both, where it has hops for that."""
    diamond = Topology(agent_of, site_on, brokers, {1: [0], 2: [0], 3: [1, 2]}, max_hops=max_hops)
    diamond.publish(0, BODIES)
    diamond.check(copies, BODIES)


def test_a_triangle_of_three_vhosts_gives_fifteen_copies(agent_of: AgentOf, site_on: SiteOn, broker: Node) -> None:
    edges = {number: [other for other in range(3) if other != number] for number in range(3)}
    triangle = Topology(agent_of, site_on, [broker], edges, max_hops=2)
    for site in triangle.sites:
        for extra in ("q2", "q3"):
            site.queue("", name=extra)
    bodies = numbered(500)
    for number in range(3):
        triangle.publish(number, bodies[number::3])
    total = 0
    for number, site in enumerate(triangle.sites):
        expected = {body: 1 if int(body) % 3 == number else 2 for body in bodies}
        for queue in (Q, "q2", "q3"):
            came = site.take(sum(expected.values()), queue=queue)
            assert times(came) == expected
            total += len(came)
    assert total == 7_500


def test_one_upstream_and_several_downstreams_and_back(
    agent_of: AgentOf, here: Site, there: Site, site_on: SiteOn
) -> None:
    """Several upstreams into one exchange; several exchanges from one upstream exchange."""
    third = site_on(there.node)
    here.exchange().queue("k").exchange("fed.second").queue("k", name="second", exchange="fed.second")
    definition = federated(there, third)
    for upstream in definition["upstreams"].values():
        upstream["exchange"] = "one.for.all"
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_running(4)
    for site in (there, third):
        site.wait_bound("k", "k", exchange="one.for.all")
        site.publish(["m"], exchange="one.for.all")
    assert here.take(2) == ["m", "m"]
    assert here.take(2, queue="second") == ["m", "m"]
    assert X not in {each["name"] for each in there.node.admin.get("exchanges", there.vhost)}
