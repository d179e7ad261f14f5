"""Arrivals as real brokers have shown them, and still do in tests/integration/topology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.fields import EMPTY, Table
from agent.core.model import Binding
from agent.core.rules import hops
from agent.core.rules.hops import Route
from agent.core.topology.findings import Arrival, Part, Remedy, examine, ranges
from agent.core.topology.graph import Graph, Hop, Node, bound, copies
from tests.unit.core.hop_rules import judge

Edges = Mapping[int, Sequence[int]]
"""For each downstream site the numbers of its upstream sites."""

COMPLETE: Edges = {number: [other for other in range(4) if other != number] for number in range(4)}
RING: Edges = {number: [(number + 1) % 6] for number in range(6)}
DIAMOND: Edges = {1: [0], 2: [0], 3: [1, 2]}
TREE: Edges = {1: [0], 2: [0], 3: [1], 4: [1], 5: [2], 6: [2], 7: [3]}
TRIANGLE: Edges = {number: [other for other in range(3) if other != number] for number in range(3)}


def node(number: int) -> Node:
    return Node(f"c{number}", "/", "x")


def graph(edges: Edges, max_hops: int) -> Graph:
    return Graph(tuple(Hop(node(up), node(down), max_hops) for down, found in edges.items() for up in found))


def part(edges: Edges, max_hops: int) -> Part:
    [found] = examine(graph(edges, max_hops)).parts
    return found


def arrived(edges: Edges, max_hops: int, publisher: int) -> dict[int, int]:
    found = examine(graph(edges, max_hops)).arrivals
    return {int(each.subscriber.cluster[1:]): each.copies for each in found if each.publisher == node(publisher)}


@pytest.mark.parametrize(
    ("edges", "max_hops", "publisher", "expected"),
    [
        ({0: [1], 1: [0]}, 1, 0, {1: 1}),
        (COMPLETE, 1, 3, {0: 1, 1: 1, 2: 1}),
        (RING, 5, 0, dict.fromkeys(range(1, 6), 1)),
        (RING, 2, 0, {1: 0, 2: 0, 3: 0, 4: 1, 5: 1}),
        (DIAMOND, 1, 0, {1: 1, 2: 1, 3: 0}),
        (DIAMOND, 2, 0, {1: 1, 2: 1, 3: 2}),
        (TREE, 3, 0, dict.fromkeys(range(1, 8), 1)),
        (TREE, 3, 1, {3: 1, 4: 1, 7: 1}),
        (TRIANGLE, 2, 0, {1: 2, 2: 2}),
    ],
)
def test_how_often_a_message_arrives(edges: Edges, max_hops: int, publisher: int, expected: Mapping[int, int]) -> None:
    assert arrived(edges, max_hops, publisher) == expected


@pytest.mark.parametrize(
    ("edges", "fitting"),
    [(COMPLETE, (1,)), (RING, (5, 6)), (DIAMOND, ()), (TREE, (3, 4, 5, 6, 7, 8)), (TRIANGLE, (1,))],
)
def test_which_max_hops_would_be_right(edges: Edges, fitting: Sequence[int]) -> None:
    assert part(edges, 1).fitting == fitting


def test_what_is_wrong_and_what_hangs_on_one_link() -> None:
    found = part(DIAMOND, 2)
    assert found.repeated == (Arrival(node(0), node(3), 2),)
    assert found.never == ()
    assert found.fragile == ()
    assert not found.is_right
    assert len(part(RING, 5).fragile) == 6
    assert part(RING, 5).is_one_way_ring
    assert not part(TRIANGLE, 1).is_one_way_ring


def test_what_one_link_must_differ_in() -> None:
    assert part(DIAMOND, 1).remedies == (
        Remedy(Hop(node(1), node(3)), 1, 2),
        Remedy(Hop(node(2), node(3)), 1, 2),
    )
    assert part({0: [1], 1: [2], 2: [0]}, 1).remedies == ()


TWO_WAY_RING: Edges = {number: [(number + 1) % 6, (number - 1) % 6] for number in range(6)}
SHORTCUTS: Edges = {1: [0], 2: [1, 0], 3: [2, 1, 0], 4: [3, 2, 0]}
"""A line with links that leave out some of it."""
LADDER: Edges = {1: [0], 2: [0], 3: [1, 2], 4: [3], 5: [3], 6: [4, 5]}


def test_fewer_links_that_would_be_right() -> None:
    reduction = part(TWO_WAY_RING, 3).reduction
    assert reduction is not None
    assert (reduction.fitting, len(reduction.left_out), len(reduction.ring)) == ((5, 6), 6, 6)
    whole = graph(SHORTCUTS, 1)
    reduction = part(SHORTCUTS, 1).reduction
    assert reduction is not None
    assert reduction.ring == ()
    left = Graph(tuple(hop for hop in whole.hops if hop not in reduction.left_out))
    assert [each.is_right for each in examine(left.with_max_hops(reduction.fitting[0])).parts] == [True]


def test_links_that_are_missing_where_none_can_go() -> None:
    found = part(LADDER, 3)
    assert (found.fitting, found.remedies, found.reduction) == ((), (), None)
    whole = Graph((*graph(LADDER, 1).hops, *found.missing))
    assert found.missing
    assert [each.is_right for each in examine(whole).parts] == [True]


def test_fewer_links_are_advised_only_where_no_values_are_right() -> None:
    assert part(DIAMOND, 1).reduction is None
    assert part(RING, 1).reduction is None


def test_a_link_from_an_exchange_to_itself_is_not_right() -> None:
    found = part({1: [0, 1]}, 1)
    assert found.to_themselves == (Hop(node(1), node(1), 1),)
    assert not found.is_right


def test_parts_that_no_link_connects_are_judged_apart() -> None:
    found = examine(graph({0: [1], 1: [0], 3: [2], 4: [3]}, 1))
    assert [each.is_right for each in found.parts] == [True, False]
    assert [each.fitting for each in found.parts] == [(1, 2), (2, 3)]
    assert not found.is_right


def test_copies_beyond_counting_are_given_up_but_right_values_are_found() -> None:
    many: Edges = {number: [other for other in range(12) if other != number] for number in range(12)}
    found = part(many, 11)
    assert found.arrivals is None
    assert not found.is_right
    assert found.fitting == (1,)


def test_values_from_which_on_nothing_changes() -> None:
    assert ranges((2, 3, 4), unlimited_from=4) == "2 or more"
    assert ranges((4,), unlimited_from=4) == "4 or more"


@pytest.mark.parametrize(
    ("values", "shown"), [((), ""), ((2,), "2"), ((1, 2, 3), "1 to 3"), ((1, 3, 4, 7), "1 or 3 to 4 or 7")]
)
def test_values_as_people_read_them(values: tuple[int, ...], shown: str) -> None:
    assert ranges(values) == shown


graphs = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 4)).filter(lambda edge: edge[0] != edge[1]),
    min_size=1,
    max_size=8,
    unique_by=lambda edge: edge[:2],
).map(lambda edges: Graph(tuple(Hop(node(up), node(down), most) for up, down, most in edges)))


@given(graphs)
def test_messages_travel_as_headers_let_them(federation: Graph) -> None:
    everything = frozenset(federation.hops)
    for publisher in federation.nodes:
        assert copies(federation, publisher, through=everything) == by_headers(federation, publisher)


def by_headers(federation: Graph, publisher: Node) -> dict[Node, int]:
    found: dict[Node, int] = {}
    ahead: list[tuple[Node, Table]] = [(publisher, EMPTY)]
    while ahead:
        at, headers = ahead.pop()
        for hop in federation.leaving(at):
            if judge(headers, hop.max_hops, hop.downstream.site) is hops.Verdict.FORWARD:
                entry = hops.received_entry("amqp://h", "x", redelivered=False, upstream=at.site)
                found[hop.downstream] = found.get(hop.downstream, 0) + 1
                ahead.append((hop.downstream, hops.with_entry(headers, hops.RECEIVED_FROM, entry)))
    return found


@given(graphs)
def test_bindings_travel_as_their_arguments_let_them(federation: Graph) -> None:
    for subscriber in federation.nodes:
        assert bound(federation, [subscriber]) == by_arguments(federation, subscriber)


def by_arguments(federation: Graph, subscriber: Node) -> frozenset[Hop]:
    found: set[Hop] = set()
    ahead: list[tuple[Node, Table]] = [(subscriber, EMPTY)]
    while ahead:
        at, arguments = ahead.pop()
        for hop in federation.entering(at):
            route = Route(hop.upstream.site, hop.downstream.site, "x", hop.max_hops)
            group = route.group(Binding("k", arguments, destination="q"), "A")
            if group is not None:
                found.add(hop)
                ahead.append((hop.upstream, group.arguments))
    return frozenset(found)
