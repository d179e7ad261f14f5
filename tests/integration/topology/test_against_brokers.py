"""What `topology` says of the agents' files is what comes at real brokers. Sites are vhosts, which hops tell apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.acceptance.command import federation_agent
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, federated
from tests.lab.node import Node
from tests.lab.user_program import times
from tests.tiers import thorough

Edges = Mapping[int, Sequence[int]]
"""For each downstream site the numbers of its upstream sites."""
MESHES = {
    size: {number: [other for other in range(size) if other != number] for number in range(size)} for size in (3, 4)
}

FEW: Mapping[str, tuple[Edges, int]] = {
    "triangle, too many hops": (MESHES[3], 2),
    "diamond, too few hops": ({1: [0], 2: [0], 3: [1, 2]}, 1),
    "diamond, too many hops": ({1: [0], 2: [0], 3: [1, 2]}, 2),
    "tree of depth three": ({1: [0], 2: [0], 3: [1], 4: [1], 5: [2], 6: [2], 7: [3]}, 3),
}
MORE: Mapping[str, tuple[Edges, int]] = {
    "pair": ({0: [1], 1: [0]}, 1),
    "ring of six": ({number: [(number + 1) % 6] for number in range(6)}, 5),
    "ring of six, too few hops": ({number: [(number + 1) % 6] for number in range(6)}, 3),
    "ring of six in both directions": ({number: [(number + 1) % 6, (number - 1) % 6] for number in range(6)}, 3),
    "complete graph": (MESHES[4], 1),
    "complete graph, too many hops": (MESHES[4], 3),
}
Parts = list[dict[str, Any]]
RIGHT = {"tree of depth three", "pair", "ring of six", "complete graph"}


@dataclass(frozen=True)
class Shape:
    """Sites on the brokers in turn, a queue bound to everything at each."""

    sites: Sequence[Site]
    edges: Edges
    max_hops: int

    def definitions(self, broker: Node) -> dict[str, dict[str, object]]:
        return {
            site.vhost: federated(*(self.sites[up] for up in self.edges.get(number, ())), **{"max-hops": self.max_hops})
            for number, site in enumerate(self.sites)
            if site.node is broker and number in self.edges
        }

    def wait_steady(self) -> None:
        """Until bindings have travelled as far as they may."""
        for site, expected in zip(self.sites, bound_entries(self.edges, len(self.sites), self.max_hops), strict=True):
            site.wait_bound(*[""] * expected)

    def arrivals(self, expected: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
        """By the vhosts of publisher and subscriber, how many copies come until as many are there as are expected, and
        a moment longer. All publish at once."""
        for site in self.sites:
            site.publish([site.vhost], "")
        found: dict[tuple[str, str], int] = {}
        for at in self.sites:
            came = times(at.take(1 + sum(copies for (_, to), copies in expected.items() if to == at.vhost)))
            assert came.pop(at.vhost) == 1
            found |= {(publisher, at.vhost): copies for publisher, copies in came.items()}
        return found


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


@pytest.mark.parametrize("chosen", [FEW, thorough(MORE)], ids=["few", "more"])
def test_copies_and_verdicts_are_those_of_real_brokers(
    agent_of: AgentOf, site_on: SiteOn, brokers: Sequence[Node], chosen: Mapping[str, tuple[Edges, int]]
) -> None:
    shapes = {name: _shape(edges, max_hops, site_on, brokers) for name, (edges, max_hops) in chosen.items()}
    agents = []
    for broker in brokers:
        vhosts = {vhost: found for each in shapes.values() for vhost, found in each.definitions(broker).items()}
        agents.append(agent_of(broker).write(vhosts).start())
    simulated = _simulated(agents)
    for shape in shapes.values():
        shape.wait_steady()
    for name, shape in shapes.items():
        expected = _expected(simulated, shape)
        assert shape.arrivals(expected) == expected, name
        assert all(part["right"] for part in _parts(simulated, shape)) == (name in RIGHT), name
    if chosen is MORE:
        [two_ways] = _parts(simulated, shapes["ring of six in both directions"])
        assert (two_ways["fitting_max_hops"], len(two_ways["fewer_links"]["one_way_ring"])) == ([], 6)
        assert shapes["ring of six"].max_hops in two_ways["fewer_links"]["fitting_max_hops"]


def _shape(edges: Edges, max_hops: int, site_on: SiteOn, brokers: Sequence[Node]) -> Shape:
    count = 1 + max(*edges, *(up for found in edges.values() for up in found))
    sites = [site_on(brokers[number % len(brokers)]) for number in range(count)]
    for site in sites:
        site.exchange(kind="fanout").queue("")
    return Shape(sites, edges, max_hops)


def _simulated(agents: Sequence[Agent]) -> Parts:
    """By the command as users call it, with the very files that the agents run with."""
    done = federation_agent("topology", *(agent.path for agent in agents), "--exchange", "fed.x", "--format", "json")
    assert done.status == 4
    found: Parts = json.loads(done.out)["parts"]
    return found


def _parts(simulated: Parts, shape: Shape) -> Parts:
    vhosts = {site.vhost for site in shape.sites}
    return [part for part in simulated if {each["vhost"] for each in part["exchanges"]} <= vhosts]


def _expected(simulated: Parts, shape: Shape) -> dict[tuple[str, str], int]:
    return {
        (each["from"]["vhost"], each["to"]["vhost"]): each["copies"]
        for part in _parts(simulated, shape)
        for each in part["arrivals"]
        if each["copies"]
    }
